package authorize

import (
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/rpc/status"
)

// errUnknown: the node does not know the roles of its cluster yet, so that it
// cannot tell who may do what.
var errUnknown = status.New(connect.CodeUnavailable, "the node has not caught up with the roles of its cluster yet; retry after a moment")

// DeniedError says what a caller may not do.
type DeniedError struct {
	who  *principal.Principal
	call authz.Call
	made authz.Decision
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%s lacks the verb %s%s: %s", named(e.who), authz.VerbText(e.call.Verb), what(e.call), why(e.made))
}

// Code implements status.Coded.
func (e *DeniedError) Code() connect.Code { return connect.CodePermissionDenied }

// Detail implements status.Detailed.
func (e *DeniedError) Detail() proto.Message {
	about := map[string]string{"verb": authz.VerbText(e.call.Verb)}
	if e.call.Types == authz.One && len(e.call.Type) <= maxNamed {
		about["type"] = e.call.Type
	}
	return &errdetails.ErrorInfo{Reason: "ROLE_REQUIRED", Domain: "hostd", Metadata: about}
}

// maxNamed bounds what an error quotes of a request that nobody has checked.
const maxNamed = 64

func named(p *principal.Principal) string {
	if p.Kind == principal.Anonymous {
		return "who calls without a credential"
	}
	return fmt.Sprintf("%s %q", p.Kind, p.Name)
}

// what words what a call is about, with a space before it.
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
		fmt.Fprintf(&out, ", ids that begin with %.64q", c.ID)
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
