"""The formats of files that documents are read from.

readers       a file -> rows
front_matter  the YAML at the beginning of a Markdown file -> metadata
json_array    a file that is one JSON array, object by object
extraction    what extractors have in common: a file -> one document in Markdown
registry      the formats that have extractors
docx, pptx, xlsx, epub  the extractors of Office files and books, with word_*, number_formats and xhtml_text
archive, xml, opc       the zip archives and the XML that those are, within limits
markdown_marks          text in which no mark of Markdown means anything; code, tables and headings
markdown_text           Markdown that shows the words of a file, and where its pages begin
page_layout, page_ocr   the blocks of a page of PDF, by its characters (pdf_text) or its picture (tesseract)
"""
