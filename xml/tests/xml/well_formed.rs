//! Every rule that makes a text malformed, and the odd things that do not.

use crate::support::{domain, fixture};
use volferry_xml::{Document, DomainXml, MalformedRule as Rule, MalformedXml};

fn fault(text: &str) -> MalformedXml {
    match Document::parse(text) {
        Ok(_) => panic!("accepted: {text:?}"),
        Err(fault) => fault,
    }
}

fn rule(text: &str) -> Rule {
    fault(text).rule
}

#[test]
fn a_whole_document_is_needed() {
    assert_eq!(rule(""), Rule::NoRoot);
    assert_eq!(rule(" \n<!-- nothing -->"), Rule::NoRoot);
    assert_eq!(rule("<a><b></b>"), Rule::Unclosed("a".into()));
    assert_eq!(rule("<a/><b/>"), Rule::SeveralRoots);
    assert_eq!(rule("<a></a></a>"), Rule::SeveralRoots);
    assert_eq!(
        rule("<a><b></a></b>"),
        Rule::UnmatchedEnd { expected: "b".into(), found: "a".into() }
    );
    for text in
        ["x<a/>", "<a/>x", "<a/>&amp;", "<![CDATA[]]><a/>", "\u{a0}<a/>", "\u{feff}\u{feff}<a/>"]
    {
        assert_eq!(rule(text), Rule::TextOutsideRoot, "{text:?}");
    }
    for text in ["<a", "<a b='", "<a></a", "<a><!-- x", "<a><![CDATA[x", "<a>&am", "<a><?x"] {
        fault(text);
    }
}

#[test]
fn references_and_characters_are_those_of_xml_1_0() {
    assert_eq!(rule("<a>&nbsp;</a>"), Rule::UnknownEntity("nbsp".into()));
    assert_eq!(rule("<a b='&lol9;'/>"), Rule::UnknownEntity("lol9".into()));
    for text in ["<a>&#0;</a>", "<a b='&#xFFFF;'/>", "<a b='&#55296;'/>", "<a b='a&b'/>"] {
        assert_eq!(rule(text), Rule::BadReference, "{text}");
    }
    fault("<a>a & b</a>");
    assert_eq!(rule("<a>\u{0}</a>"), Rule::ForbiddenCharacter(0));
    assert_eq!(rule("<a b='\u{1b}'/>"), Rule::ForbiddenCharacter(0x1b));
    assert_eq!(rule("<a>\u{FFFE}</a>"), Rule::ForbiddenCharacter(0xFFFE));
    assert_eq!(rule("<a>]]></a>"), Rule::CdataEndInText);
}

#[test]
fn document_type_declarations_are_refused_whatever_they_hold() {
    let bomb =
        "<!DOCTYPE d [<!ENTITY a 'x'><!ENTITY b '&a;&a;'>]><domain><name>&b;</name></domain>";
    for text in [
        bomb,
        "<!DOCTYPE domain><domain/>",
        "<!DOCTYPE domain SYSTEM 'file:///etc/passwd'><domain/>",
        "<!doctype domain><domain/>",
    ] {
        assert_eq!(rule(text), Rule::Doctype, "{text}");
    }
    fault("<domain><!DOCTYPE x></domain>");
    fault("<domain><!ENTITY x 'y'></domain>");
}

#[test]
fn tags_comments_and_instructions_follow_the_grammar() {
    assert_eq!(rule("<a b='1' b='2'/>"), Rule::DuplicateAttribute("b".into()));
    assert_eq!(rule("<a><!-- a -- b --></a>"), Rule::CommentHyphens);
    assert_eq!(rule("<a><!-- a ---></a>"), Rule::CommentHyphens);
    assert_eq!(rule("<a b='<'/>"), Rule::BadTag);
    assert_eq!(rule("<a b/>"), Rule::BadTag);
    assert_eq!(rule("<a><?xml version='1.0'?></a>"), Rule::MisplacedDeclaration);
    assert_eq!(rule(" <?xml version='1.0'?><a/>"), Rule::MisplacedDeclaration);
    for text in
        ["<1a/>", "<a:b:c/>", "< a/>", "<a><?1?></a>", "<a/ >", "<a><!--></a>", "<a><!---></a>"]
    {
        fault(text);
    }
}

#[test]
fn a_declaration_may_not_contradict_the_text() {
    for text in [
        "<?xml version='1.0'?><a/>",
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\" standalone='yes' ?>\r\n<a/>",
        "<?xml version='1.0' encoding='ISO-8859-1'?><a/>",
    ] {
        assert!(Document::parse(text).is_ok(), "{text}");
    }
    for text in [
        "<?xml?><a/>",
        "<?xml version='2.0'?><a/>",
        "<?xml encoding='utf-8'?><a/>",
        "<?xml version='1.0' encoding='UTF-16'?><a/>",
        "<?xml version='1.0' encoding='ISO-8859-1'?><a b='ö'/>",
        "<?xml version='1.0' standalone='maybe'?><a/>",
        "<?xml version='1.0' other='x'?><a/>",
    ] {
        assert_eq!(rule(text), Rule::BadDeclaration, "{text}");
    }
}

#[test]
fn prefixes_are_declared_in_scope() {
    assert!(Document::parse("<a xmlns:x='u'><x:b x:c='' xml:lang='de'/></a>").is_ok());
    assert_eq!(rule("<x:a/>"), Rule::UnboundPrefix("x".into()));
    assert_eq!(rule("<a><b xmlns:x='u'/><x:c/></a>"), Rule::UnboundPrefix("x".into()));
    assert_eq!(rule("<a x:b='1'/>"), Rule::UnboundPrefix("x".into()));
    assert_eq!(rule("<a xmlns:x=''/>"), Rule::UnboundPrefix("x".into()));
}

#[test]
fn limits_are_enforced() {
    let nested = |depth| "<a>".repeat(depth) + &"</a>".repeat(depth);
    assert!(Document::parse(&nested(128)).is_ok());
    assert_eq!(rule(&nested(129)), Rule::TooDeep { limit: 128 });
    let many = format!("<a>{}</a>", "<b/>".repeat(100_000));
    assert_eq!(rule(&many), Rule::TooManyElements { limit: 100_000 });
    let large = format!("<a>{}</a>", " ".repeat(4 * 1024 * 1024));
    assert!(matches!(rule(&large), Rule::TooLarge { .. }));
}

#[test]
fn a_fault_names_its_place() {
    let fault = fault("<a>\n  <ö b='1' b='2'/></a>");
    assert_eq!(fault.offset, 16);
    assert_eq!(
        fault.to_string(),
        "malformed xml at byte 16: attribute b occurs twice in one tag, near \"b='2'/></a>\""
    );
}

#[test]
fn a_cut_off_dump_is_not_a_domain() {
    assert!(DomainXml::parse(&fixture("cases/malformed-truncated.xml")).is_err());
}

#[test]
fn only_a_domain_is_a_domain() {
    for (text, found) in [
        ("<domstatus><domain/></domstatus>", "domstatus"),
        ("<disk/>", "disk"),
        ("<x:domain xmlns:x='u'/>", "x:domain"),
        ("<domain xmlns='u'/>", "domain"),
    ] {
        let error = DomainXml::parse(text).unwrap_err();
        assert_eq!(error.rule, Rule::UnexpectedRoot { found: found.into(), expected: "domain" });
    }
    assert!(DomainXml::parse("<domain/>").unwrap().disks().is_empty());
}

#[test]
fn texts_come_back_as_they_were() {
    for name in crate::support::documents() {
        assert_eq!(domain(&name).text(), fixture(&name), "{name}");
    }
}
