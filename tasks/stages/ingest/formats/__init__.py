"""The file formats that documents are read from.

front_matter  the YAML at the beginning of a Markdown file -> metadata
json_array    reads a file that is one JSON array, element by element
extraction    the interface of extractors: a file -> one document in Markdown
format_registry         the formats that have extractors
docx, pptx, xlsx, epub  the extractors of Office files and books, with word_*, number_formats and xhtml_text
sheet_tables            writes the cells of spreadsheets
opendocument, old_office, eml, xml_text, by_xberg   those of OpenDocument, old Office files, e-mail, XML, RTF and others
text_encoding, mdx      decides the encoding of a text; removes the components of MDX
archive, xml, opc       read zip archives and XML, the containers of those formats, within limits
markdown_marks          escapes Markdown markup, and formats code, tables and headings
markdown_text           writes Markdown, and records where the pages of a file begin
page_layout, page_ocr   the blocks of a PDF page, from its characters (pdf_text) or its picture (tesseract)
running_heads           the heads and page numbers of a PDF, which are left out
ruled_tables            the tables of a PDF page that lines divide (page_drawing)
right_to_left           Hebrew and Arabic of a PDF in logical order
glyph_names, plausible_text, typed_text  letters without Unicode, ciphers, and form values of a PDF
"""
