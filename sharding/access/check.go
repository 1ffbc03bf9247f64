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

// Check returns an error wrapping ErrInvalid if the role is invalid.
func (r Role) Check() error {
	if err := CheckRoleName(r.Name); err != nil {
		return err
	}
	if IsBuiltIn(r.Name) {
		return invalid("the role %s is built in and cannot be changed", r.Name)
	}
	if len(r.Rules) == 0 && r.Quotas == (Quotas{}) || len(r.Rules) > MaxRules {
		return invalid("a role has %d rules, 1 to %d are allowed, or none if it has quotas", len(r.Rules), MaxRules)
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

// CheckRoleName returns an error wrapping ErrInvalid if the name is not a valid
// role name.
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
		return invalid("the effect must be allow or deny, got %.40q", string(r.Effect))
	}
	if len(r.Verbs) == 0 {
		return invalid("a rule must name at least one verb")
	}
	for what, list := range r.lists() {
		if len(list) > MaxRuleEntries {
			return invalid("%d %s, at most %d are allowed", len(list), what, MaxRuleEntries)
		}
	}
	for _, v := range r.Verbs {
		switch {
		case r.Effect == Deny && (v == Any || v == Security):
			// Denying all verbs or the security verb could lock out the administrators
			// of roles, who could then not revert that change.
			return invalid("%q cannot be denied: take the role away that allows it", v)
		case v != Any && !slices.Contains(Verbs, v):
			return invalid("unknown verb %.40q: use %s, or * for all", v, strings.Join(Verbs, ", "))
		}
	}
	for _, p := range r.Types {
		name := strings.TrimSuffix(p, Any)
		if p == "" || len(p) > MaxPatternBytes || strings.ContainsFunc(name, func(c rune) bool { return c >= utf8.RuneSelf || !typeByte(byte(c)) }) {
			return invalid("the type pattern %.80q is neither an entity type name nor a prefix of one followed by *", p)
		}
	}
	for _, p := range r.IDPrefixes {
		if err := checkPrefix(p); err != nil {
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

// lists yields each list of the rule with its JSON name.
func (r Rule) lists() func(yield func(string, []string) bool) {
	return func(yield func(string, []string) bool) {
		_ = yield("verbs", r.Verbs) && yield("types", r.Types) && yield("idPrefixes", r.IDPrefixes) && yield("commands", r.Commands)
	}
}

// checkPrefix returns an error wrapping ErrInvalid if p is not a valid id
// prefix. A variable must be followed by a separator: without a separator, the
// prefix for the caller al would also match ids for the caller alice.
func checkPrefix(p string) error {
	if err := checkText("prefix of ids", p); err != nil {
		return err
	}
	for _, variable := range Variables {
		before, after, has := strings.Cut(p, variable)
		switch {
		case !has:
		case strings.Contains(before, "${") || strings.Contains(after, "${"):
			return invalid("the prefix %.80q has more than one variable", p)
		case after == "":
			return invalid("the prefix %.80q ends with the variable %s: put a separator after it, such as /", p, variable)
		default:
			return nil
		}
	}
	if strings.Contains(p, "${") {
		return invalid("the prefix %.80q has an unknown variable: use %s or %s", p, PrincipalVariable, NameVariable)
	}
	return nil
}

// Check returns an error wrapping ErrInvalid if the binding is invalid. It does
// not check whether the roles exist.
func (b Binding) Check() error {
	if err := CheckSubject(b.Subject); err != nil {
		return err
	}
	if len(b.Roles) == 0 || len(b.Roles) > MaxBindingRoles {
		return invalid("a binding has %d roles, 1 to %d are allowed", len(b.Roles), MaxBindingRoles)
	}
	for i, name := range b.Roles {
		if err := CheckRoleName(name); err != nil {
			return err
		}
		if slices.Contains(b.Roles[:i], name) {
			return invalid("the role %s is listed twice", name)
		}
	}
	if b.Subject == KindAnonymous && b.BindsAdmin() {
		return invalid("anonymous callers cannot have the role %s: bind it to a token, a certificate, a JWT subject or a group", RoleAdmin)
	}
	return nil
}

// CheckSubject returns an error wrapping ErrInvalid if the subject is
// malformed.
func CheckSubject(subject string) error {
	if len(subject) > MaxSubjectBytes {
		return invalid("a subject has %d bytes, at most %d are allowed", len(subject), MaxSubjectBytes)
	}
	kind, name := SplitSubject(subject)
	switch {
	case subject == KindAnonymous:
		return nil
	case kind != KindToken && kind != KindJWT && kind != KindCertificate && kind != KindGroup || name == "":
		return invalid("invalid subject %.80q: use token:NAME, jwt:NAME, certificate:NAME, group:NAME or anonymous", subject)
	}
	return printable("subject", subject)
}

// CheckOwner returns an error wrapping ErrInvalid if the subject cannot own a
// type. The anonymous subject cannot, because anybody could act as it.
func CheckOwner(subject string) error {
	if subject == KindAnonymous {
		return invalid("anonymous callers cannot own an entity type")
	}
	return CheckSubject(subject)
}

func checkText(what, text string) error {
	if text == "" || len(text) > MaxPatternBytes {
		return invalid("a %s has %d bytes, 1 to %d are allowed", what, len(text), MaxPatternBytes)
	}
	return printable(what, text)
}

// printable checks that the text is UTF-8 without control characters. It uses
// no Unicode tables, which differ between Go releases.
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
