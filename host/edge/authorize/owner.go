package authorize

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/sharding/access"
)

// Own returns a *notOwnerError unless the caller may change an entity type that
// belongs to owner. It may if owner is its subject or a group that it
// belongs to, if it may admin the type, or if the type has no owner. becomes
// is the owner of the type after a change that assigns an unowned type to
// its caller.
func (a *Authorizer) Own(ctx context.Context, entityType, owner string) (becomes string, err error) {
	if err := a.confirm(ctx, &procedure.Procedure{Verb: authv1.Verb_DEPLOY, Changes: true}); err != nil {
		return "", err
	}
	becomes, revision, err := a.owns(authn.Of(ctx).Principal, entityType, owner)
	if err != nil {
		a.refused[authv1.Verb_DEPLOY].Inc()
		audit.SetPolicyRevision(ctx, revision)
	}
	return becomes, err
}

// Owns is Own for a caller that only asks and changes nothing.
func (a *Authorizer) Owns(ctx context.Context, entityType, owner string) error {
	_, _, err := a.owns(authn.Of(ctx).Principal, entityType, owner)
	return err
}

func (a *Authorizer) owns(p *principal.Principal, entityType, owner string) (becomes string, revision uint64, err error) {
	table := a.table.Load()
	switch {
	case table == nil || !table.Enforced():
		return owner, 0, nil // callers are not distinguished
	case owner == "":
		return subjectOf(p), table.Revision(), nil
	case authz.Names(owner, p), table.Decide(p, authz.Call{Verb: authv1.Verb_ADMIN, Types: authz.One, Type: entityType}) == authz.Allowed:
		return owner, table.Revision(), nil
	}
	return "", table.Revision(), &notOwnerError{who: p, entityType: entityType}
}

// subjectOf returns the caller's own subject, as opposed to its groups; empty
// for a caller that cannot own anything.
func subjectOf(p *principal.Principal) string {
	subject := string(p.Kind) + ":" + p.Name
	if access.CheckOwner(subject) != nil {
		return ""
	}
	return subject
}

// notOwnerError: an entity type belongs to a different owner. The error does
// not reveal the owner.
type notOwnerError struct {
	who        *principal.Principal
	entityType string
}

func (e *notOwnerError) Error() string {
	return fmt.Sprintf("entity type %.64q belongs to an owner other than %s; 'hostd type owner' shows the owner", e.entityType, callerName(e.who))
}

// Code implements status.Coded.
func (e *notOwnerError) Code() connect.Code { return connect.CodePermissionDenied }

// Detail implements status.Detailed.
func (e *notOwnerError) Detail() proto.Message {
	about := map[string]string{"verb": authz.VerbText(authv1.Verb_DEPLOY)}
	if len(e.entityType) <= maxNamed {
		about["type"] = e.entityType
	}
	return &errdetails.ErrorInfo{Reason: "NOT_OWNER", Domain: "hostd", Metadata: about}
}
