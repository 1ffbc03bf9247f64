package access

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// Check says whether the role may be kept: ErrInvalid.
func (r Role) Check() error {
	if err := CheckRoleName(r.Name); err != nil {
		return err
	}
	if IsBuiltIn(r.Name) {
		return invalid("the role %s is built in and stays as it is", r.Name)
	}
	if len(r.Rules) == 0 && r.Quotas == (Quotas{}) || len(r.Rules) > MaxRules {
		return invalid("a role of %d rules, 1 to %d are allowed, or none beside quotas", len(r.Rules), MaxRules)
	}
	if err := r.Quotas.check(); err != nil {
		return err
	}
	for i, rule := range r.Rules {
		if err := rule.check(); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return nil
}

// CheckRoleName refuses what is no name of a role.
func CheckRoleName(name string) error {
	if name == "" || len(name) > MaxNameBytes {
		return invalid("the name of a role has %d bytes, 1 to %d are allowed", len(name), MaxNameBytes)
	}
	for i := range len(name) {
		if !typeByte(name[i]) && name[i] != '_' && name[i] != '.' {
			return invalid("the name of a role has a character outside [a-z0-9._-] at byte %d", i)
		}
	}
	return nil
}

// typeByte reports whether a byte may be in the name of an entity type.
func typeByte(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }

func (r Rule) check() error {
	if r.Effect != Allow && r.Effect != Deny {
		return invalid("the effect is %.40q: allow or deny", string(r.Effect))
	}
	if len(r.Verbs) == 0 {
		return invalid("no verbs: a rule names those that it is for")
	}
	for what, list := range r.lists() {
		if len(list) > MaxRuleEntries {
			return invalid("%d %s, at most %d are allowed", len(list), what, MaxRuleEntries)
		}
	}
	for _, v := range r.Verbs {
		switch {
		case r.Effect == Deny && (v == Any || v == Security):
			// Who may give roles could not take this back.
			return invalid("%q cannot be denied: take the role away that allows it", v)
		case v != Any && !slices.Contains(Verbs, v):
			return invalid("there is no verb %.40q: %s, or * for all", v, strings.Join(Verbs, ", "))
		}
	}
	for _, p := range r.Types {
		name := strings.TrimSuffix(p, Any)
		if p == "" || len(p) > MaxPatternBytes || strings.ContainsFunc(name, func(c rune) bool { return c >= utf8.RuneSelf || !typeByte(byte(c)) }) {
			return invalid("the type %.80q is not the name of one, nor the beginning of one with * at the end", p)
		}
	}
	for _, p := range r.IDPrefixes {
		if err := CheckPrefix(p); err != nil {
			return err
		}
	}
	for _, p := range r.Commands {
		if err := checkText("command", p); err != nil {
			return err
		}
	}
	return nil
}

// lists yields the lists of the rule by what they have.
func (r Rule) lists() func(yield func(string, []string) bool) {
	return func(yield func(string, []string) bool) {
		_ = yield("verbs", r.Verbs) && yield("types", r.Types) && yield("idPrefixes", r.IDPrefixes) && yield("commands", r.Commands)
	}
}

// CheckPrefix refuses what is no prefix of ids. A variable needs something
// behind it: the ids of al would be those of alice otherwise.
func CheckPrefix(p string) error {
	if err := checkText("prefix of ids", p); err != nil {
		return err
	}
	for _, variable := range Variables {
		before, after, has := strings.Cut(p, variable)
		switch {
		case !has:
		case strings.Contains(before, "${") || strings.Contains(after, "${"):
			return invalid("the prefix %.80q has two variables", p)
		case after == "":
			return invalid("the prefix %.80q ends with %s: put a separator after it, such as /", p, variable)
		default:
			return nil
		}
	}
	if strings.Contains(p, "${") {
		return invalid("the prefix %.80q has a variable that is neither %s nor %s", p, PrincipalVariable, NameVariable)
	}
	return nil
}

// Check says whether the binding may be kept: ErrInvalid. Whether its roles
// exist is not known here.
func (b Binding) Check() error {
	if err := CheckSubject(b.Subject); err != nil {
		return err
	}
	if len(b.Roles) == 0 || len(b.Roles) > MaxBindingRoles {
		return invalid("a binding of %d roles, 1 to %d are allowed", len(b.Roles), MaxBindingRoles)
	}
	for i, name := range b.Roles {
		if err := CheckRoleName(name); err != nil {
			return err
		}
		if slices.Contains(b.Roles[:i], name) {
			return invalid("the role %s is there twice", name)
		}
	}
	if b.Subject == KindAnonymous && b.BindsAdmin() {
		return invalid("the anonymous cannot be %s", RoleAdmin)
	}
	return nil
}

// CheckSubject refuses what is no subject.
func CheckSubject(subject string) error {
	if len(subject) > MaxSubjectBytes {
		return invalid("a subject of %d bytes, at most %d are allowed", len(subject), MaxSubjectBytes)
	}
	kind, name := SplitSubject(subject)
	switch {
	case subject == KindAnonymous:
		return nil
	case kind != KindToken && kind != KindJWT && kind != KindCertificate && kind != KindGroup || name == "":
		return invalid("the subject %.80q is none: token:NAME, jwt:NAME, certificate:NAME, group:NAME or anonymous", subject)
	}
	return printable("subject", subject)
}

// CheckOwner refuses what owns nothing: who calls without a credential is
// nobody.
func CheckOwner(subject string) error {
	if subject == KindAnonymous {
		return invalid("who calls without a credential owns nothing")
	}
	return CheckSubject(subject)
}

func checkText(what, text string) error {
	if text == "" || len(text) > MaxPatternBytes {
		return invalid("a %s has %d bytes, 1 to %d are allowed", what, len(text), MaxPatternBytes)
	}
	return printable(what, text)
}

// printable asks nothing of the tables of Unicode.
func printable(what, text string) error {
	if !utf8.ValidString(text) {
		return invalid("the %s is not UTF-8", what)
	}
	for i := range len(text) {
		if text[i] < 0x20 || text[i] == 0x7f {
			return invalid("the %s has a control character at byte %d", what, i)
		}
	}
	return nil
}
