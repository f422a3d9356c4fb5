"""Words that stand before or after names, or end them, in languages whose names have no capitals, and in German.

They do there what capitals do in other languages. Each is a word of everyday text, such as *river* or *president*.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NameCues:
    """The cues of a language.

    before: words that precede a name and belong to it. ranks: words that precede a person's name and do not belong to
    it. after: words that follow a name and belong to it. titles: words that follow a person's name and do not belong to
    it. endings: last syllables of a name within its word. joining: words that connect two words of one name. prefixes:
    letters that are written together with the next word. particles: syllables that follow a word without a space.
    """

    before: frozenset[str] = frozenset()
    ranks: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    titles: frozenset[str] = frozenset()
    endings: tuple[str, ...] = ()
    joining: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    particles: tuple[str, ...] = ()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _longest_first(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split(), key=lambda word: (-len(word), word)))


CUES = {
    "ar": NameCues(
        before=_words(
            "مدينة جامعة جمهورية مملكة نهر جبل جزيرة بحيرة مقاطعة ولاية محافظة شركة معركة كنيسة مجلس متحف مطار قصر نادي "
            "جائزة معاهدة إمبراطورية سلالة خليج بحر مسجد شارع حزب"
        ),
        ranks=_words(
            "الدكتور السيد السيدة الملك الملكة الرئيس الأمير الأميرة الشيخ الإمام القديس الجنرال البروفيسور المهندس الوزير "
            "الامبراطور الإمبراطور السلطان البابا اللورد الكاتب الفيلسوف الشاعر العالم المخرج الممثل اللاعب"
        ),
        joining=_words("بن ابن بنت عبد أبو ابو آل فون دي فان"),
        prefixes=("و", "ف", "ب", "ل", "ك"),
    ),
    "fa": NameCues(
        before=_words("شهر استان دانشگاه رود کوه دریای جزیره کشور جمهوری شرکت خیابان روستای شهرستان جنگ حزب"),
        ranks=_words("دکتر آقای خانم شاه امام سید مهندس استاد ملکه پادشاه"),
    ),
    "he": NameCues(
        before=_words("העיר אוניברסיטת נהר הר אגם מדינת ממלכת חברת רחוב קיבוץ מושב ים אי מפלגת מלחמת"),
        ranks=_words("מר גברת פרופסור המלך הנשיא הרב הגנרל הנסיך"),
        joining=_words("בן בת אבן דה ון פון"),
        prefixes=("ו", "ב", "ל", "מ", "ש", "ה"),
    ),
    "hi": NameCues(
        ranks=_words("श्री श्रीमती डॉ डॉक्टर राष्ट्रपति प्रधानमंत्री राजा रानी सम्राट संत स्वामी पंडित अभिनेता लेखक कवि"),
        before=_words("महात्मा गुरु"),
        after=_words(
            "नदी शहर नगर विश्वविद्यालय महाविद्यालय राज्य जिला ज़िला द्वीप पर्वत झील सागर महासागर साम्राज्य वंश मंदिर सिंह कुमार देवी "
            "गांधी खान शर्मा राव पार्टी पुरस्कार युद्ध प्रांत खाड़ी"
        ),
        joining=_words("की का के"),
    ),
    "ko": NameCues(
        titles=_words(
            "대통령 총리 장관 교수 박사 감독 선수 왕자 공주 여사 씨 목사 의원 회장 사장 작가 시인 화가 배우 가수 장군 추기경 교황 황제"
        ),
        endings=_longest_first(
            "대학교 대학 고등학교 대왕 황제 전자 그룹 공화국 왕국 제국 전쟁 혁명 조약 협정 위원회 협회 연맹 재단 박물관 미술관 도서관 병원 "
            "공항 사찰 대교 산맥 반도 제도 열도 방송 신문 은행 평화상 문학상 왕조 특별시 광역시 시 군"
        ),
        particles=_longest_first(
            "에서는 에서 에게 으로는 으로 이라는 라는 이라고 라고 부터 까지 처럼 보다 에는 에도 은 는 이 가 을 를 의 에 와 과 도 만 로 이다 였다"
        ),
    ),
    "th": NameCues(
        before=_words(
            "ประเทศ จังหวัด เมือง แม่น้ำ มหาวิทยาลัย กรุง เกาะ ทะเลสาบ ทะเล ภูเขา บริษัท สมเด็จ รัฐ เขต อำเภอ วัด มณฑล แคว้น จักรวรรดิ "
            "ราชวงศ์ อาณาจักร มหาสมุทร สหภาพ โรงเรียน พรรค พระเจ้า"
        ),
        ranks=_words("นาย นาง นางสาว ดร."),
    ),
}

HAN_ENDINGS = _longest_first(
    """
    省 市 县 縣 州 区 區 镇 鎮 乡 鄉 村 郡 岛 島 府 県 自治区 自治區 自治州 地区 地區 特别行政区
    山脉 山脈 山地 盆地 平原 高原 半岛 半島 群岛 群島 诸岛 諸島 海峡 海峽 雨林 森林 沙漠 运河 運河 大陆 大陸 共和国 共和國 王国 王國 公国 公國
    帝国 帝國 联邦 聯邦 王朝 时代 時代 大学 大學 学院 學院 中学 中學 小学 小學 学校 學校 医院 醫院 病院 公司 会社 會社 集团 集團 银行 銀行
    委员会 委員会 委員會 议会 議會 国会 國會 法院 政府 联盟 聯盟 同盟 协会 協会 協會 学会 學會 研究所 博物馆 博物館 图书馆 圖書館 図書館
    美术馆 美術館 体育馆 體育館 体育场 球场 球場 机场 機場 空港 车站 車站 铁路 鐵路 鉄道 公园 公園 广场 廣場 大厦 大廈 教堂 神社 寺院
    俱乐部 俱樂部 战争 戰爭 戦争 之战 革命 运动会 奥运会 世界杯 条约 條約 条約 协定 宪法 憲法 映画祭
    电视台 電視台 电台 出版社 新闻 新聞 日报 周刊 杂志 自動車 製作所 安全局 天皇 皇帝 国王 女王 大帝 骑士队
    """
)
"""Characters that end a name in Chinese and Japanese, even if the text goes on, longest first."""

HAN_LAST = frozenset(
    "山河江湖海洋峡峽湾灣港路街桥橋寺宫宮城站关關国國族语語教派队隊军軍党黨杯奖獎賞节節祭报報号號町川都藩駅局厅廳社线線"
)
"""Characters that end a name if nothing follows them."""

HAN_TITLES = ("さん", "氏", "先生", "女士", "小姐", "教授", "博士", "总统", "大統領", "首相", "主席", "将军")

TRANSLITERATION = frozenset(
    "阿埃艾爱愛安奥奧巴白班邦鲍鮑贝貝本比彼毕畢波伯博勃布查德登迪蒂丁杜顿頓尔爾恩法菲费費芬佛弗福夫盖蓋甘冈岡戈格根哈汉豪赫亨华華惠霍基吉加贾賈杰傑金"
    "喀卡凯凱坎康柯科克肯库庫奎拉莱萊赖賴兰蘭朗劳勞勒雷里利莉列林琳伦倫卢盧鲁魯罗羅洛马馬玛瑪迈邁曼梅门門蒙米缪繆莫默穆娜纳納奈南内尼涅宁寧纽紐诺諾欧歐帕"
    "潘佩彭皮匹普奇齐齊乔喬切琼瓊茹萨薩赛賽桑瑟沙莎什士斯丝絲思司松苏蘇索塔泰坦唐特滕提廷图圖托瓦万萬旺威韦韋维維魏温溫沃乌烏西希锡錫夏肖谢謝辛雅亚亞扬"
    "耶伊依因英尤约約泽澤扎詹珍兹茲佐逊遜娅婭姬妮蕾"
)
"""Chinese characters that write the sounds of foreign names."""

HAN_FUNCTION = frozenset(
    "今的了着過过和与與及或在于於从從到由对對把被将將为為是有这這那其该該此等且但也还還就又很最所以若则則即既乃给給让讓使令向往并不没无無被每各"
)
"""Chinese characters that stand between names."""

HAN_VERBS = _longest_first(
    "出生 毕业 畢業 担任 擔任 发表 發表 成立 建立 开始 成为 成為 加入 获得 獲得 位于 位於 来自 來自 属于 屬於 前往 宣布 宣佈 认为 認為 表示 指出 导致 包括 进行 "
    "病逝 逝世 去世 击败 擊敗 帮助 幫助 关闭 暂时 取得 首都 领导人 領導人 以及 因为 通过 根据 人民币 曾经 之一 之后 之間 之间 当时 其中 随即 原产 人称 称为 称之 决赛"
)
"""Chinese words that stand between names."""

SURNAMES = frozenset(
    "王李张張刘劉陈陳杨楊赵趙黄黃周吴吳徐孙孫胡朱林何郭马馬罗羅梁宋郑鄭谢謝韩韓唐冯馮于董萧蕭程曹袁邓鄧许許傅沈曾彭吕呂苏蘇卢盧蒋蔣蔡贾賈丁魏薛叶葉阎余潘杜戴"
    "夏钟鍾汪田任姜范方石姚谭廖邹熊金陆陸郝孔白崔康毛邱秦江史顾顧侯邵孟龙龍万段雷钱錢汤湯尹黎易常武乔賀贺赖龚龔文鲁魯温庄"
)

GERMAN_DETERMINERS = frozenset(
    """
    der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner keines mein meine meinen
    meinem meiner sein seine seinen seinem seiner seines ihr ihre ihren ihrem ihrer ihres unser unsere unseren unserem
    unserer euer eure dieser diese dieses diesem diesen jeder jede jedes jedem jeden jener jene jenes jenem jenen welche
    welcher welches welchem welchen alle allen aller viele vielen vieler einige einigen einiger mehrere mehreren
    mehrerer manche manchen beide beiden beider zwei drei vier fünf sechs sieben acht neun zehn im am zum zur vom beim
    ins ans fürs aufs solche solchen solcher weitere weiteren andere anderen anderer deren dessen pro per zahlreiche
    verschiedene wenige weniger mehr etwas viel kaum ohne
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
GERMAN_RANKS = frozenset(
    """
    Herr Herrn Frau Doktor Dr Professor Prof Präsident Präsidenten König Königs Königin Kaiser Kaisers Kaiserin Kanzler
    Bundeskanzler Bundeskanzlerin Papst Graf Gräfin Herzog Herzogin Fürst Prinz Prinzessin Firma Stadt Fluss General
    Bischof Erzbischof Kardinal Minister Ministerin Richter Ende Anfang Mitte Prozent Liter Meter Kilometer Tonnen
    Millionen Milliarden Jahr Jahre Jahren Uhr Euro Dollar Abbildung Tabelle Kapitel Abschnitt Artikel Seite
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
GERMAN_NOUN = (
    r"(?:ung|ungen|heit|heiten|keit|keiten|schaft|schaften|tion|tionen|ismus|tät|täten|nis|nisse|nissen|ment|mente"
    r"|menten|ling|linge|lingen|enz|enzen|anz|chen|tum|logie|logien|graphie|grafie)"
)
"""Endings of German nouns that are no names."""
