package authorize

import (
	"fmt"
	"strings"

	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
)

// deniedError makes the error for a call that the caller's roles do not allow.
func deniedError(who *principal.Principal, c authz.Call, made authz.Decision) error {
	e := &request.DeniedError{Verb: authz.VerbText(c.Verb)}
	if c.Types == authz.One && len(c.Type) <= maxNamed {
		e.EntityType = c.Type
	}
	if who == nil {
		e.Message = fmt.Sprintf("the called node has auth: none, but other nodes check roles: unknown callers may not use the verb %s%s", e.Verb, what(c))
		return e
	}
	e.Message = fmt.Sprintf("%s lacks the verb %s%s: %s", callerName(who), e.Verb, what(c), why(made))
	return e
}

// noAdminError makes the error for every call while no subject has the role admin.
func noAdminError(c authz.Call) error {
	return &request.DeniedError{
		Verb:    authz.VerbText(c.Verb),
		Message: "the cluster has no admin yet, so its nodes reject all callers: set auth-bootstrap-file on a node, or set admin: full to accept every caller with a credential",
	}
}

// maxNamed limits the length of quoted text from a request that was not
// validated yet.
const maxNamed = 64

func callerName(p *principal.Principal) string {
	if p.Kind == principal.Anonymous {
		return "a caller without a credential"
	}
	return fmt.Sprintf("%s %q", p.Kind, p.Name)
}

// what describes what a call is about, with a leading space.
func what(c authz.Call) string {
	if c.Types == authz.Nothing {
		return ""
	}
	var out strings.Builder
	out.WriteString(" for")
	if c.Command != "" {
		fmt.Fprintf(&out, " %.64q of", c.Command)
	}
	switch c.Types {
	case authz.One:
		fmt.Fprintf(&out, " %.64q", c.Type)
	case authz.Beginning:
		out.WriteString(" entities of all types")
	}
	switch {
	case c.IDs == authz.One:
		fmt.Fprintf(&out, ", id %.64q", c.ID)
	case c.IDs == authz.Beginning && c.ID != "":
		fmt.Fprintf(&out, ", ids with the prefix %.64q", c.ID)
	case c.IDs == authz.Beginning && c.Types == authz.One:
		out.WriteString(", all ids")
	}
	return out.String()
}

func why(d authz.Decision) string {
	switch d {
	case authz.Allowed:
		return "a rule allows it"
	case authz.Denied:
		return "a rule denies it"
	}
	return "no rule of its roles allows it"
}
