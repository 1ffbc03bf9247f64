package procedure

import (
	"strings"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/host/authz"
)

// Scope says how the target of a call is found.
type Scope int

// byRequest is the scope of a procedure that has a target. The other scopes have
// none.
const (
	byRequest Scope = iota
	// OfModules: the request names a module, by digest or by type. The call
	// concerns each type that the module describes.
	OfModules
	// OfNothing: the request concerns no entity type.
	OfNothing
	// Later: the service itself asks for a decision, once it knows what the
	// request is about. Until then the caller needs some rule for the verb.
	Later
	// Founding: the call is made before there is a cluster that could have roles.
	Founding
)

// A target resolves what a request is about.
type target func(m any, c *authz.Call)

// ofSetting targets the entity type whose setting the key names, or no type
// if the key is of a different kind.
func ofSetting(m any, c *authz.Call) {
	r, ok := m.(interface{ GetKey() string })
	if !ok {
		ofSettingsOf("", c)
		return
	}
	rest, ofType := strings.CutPrefix(r.GetKey(), typeSettings)
	if !ofType {
		return
	}
	t, _, _ := strings.Cut(rest, ".")
	ofSettingsOf(typeSettings+t+".", c)
}

// ofSettings targets the entity types whose settings have keys with the
// requested prefix.
func ofSettings(m any, c *authz.Call) {
	r, ok := m.(interface{ GetKeyPrefix() string })
	if !ok {
		ofSettingsOf("", c)
		return
	}
	ofSettingsOf(r.GetKeyPrefix(), c)
}

// typeSettings is the prefix of the keys of settings of entity types. The type
// and a dot follow.
const typeSettings = "entity."

func ofSettingsOf(prefix string, c *authz.Call) {
	rest, ofTypes := strings.CutPrefix(prefix, typeSettings)
	switch t, _, whole := strings.Cut(rest, "."); {
	case ofTypes && whole:
		c.Types, c.Type = authz.One, t
	case ofTypes:
		c.Types, c.Type = authz.Beginning, t
	case strings.HasPrefix(typeSettings, prefix):
		c.Types = authz.Beginning
	default:
		return
	}
	if c.Verb == authv1.Verb_READ {
		c.IDs = authz.Beginning
	}
}

func ofSend(m any, c *authz.Call) {
	ofEntity(m, c)
	if r, ok := m.(*entityv1.SendCommandRequest); ok {
		c.Command = r.GetCommand()
	}
}

func ofQuery(m any, c *authz.Call) {
	ofEntity(m, c)
	if r, ok := m.(*entityv1.QueryEntityRequest); ok {
		c.Command = r.GetQuery()
	}
}

// ofRun targets the entity of a run and one of its commands or queries.
func ofRun(command string) target {
	return func(m any, c *authz.Call) {
		ofEntity(m, c)
		c.Command = command
	}
}

func ofRunQuery(m any, c *authz.Call) {
	ofEntity(m, c)
	c.Command = "state"
	if r, ok := m.(*workflowv1.QueryWorkflowRequest); ok && r.GetQuery() != "" {
		c.Command = r.GetQuery()
	}
}

// ofEntity targets the entity that a request names, all entities of a type
// if the request names only the type, and everything if it names neither.
func ofEntity(m any, c *authz.Call) {
	ofTypeAndItsEntities(m, c)
	if r, ok := m.(interface{ GetEntityId() string }); ok && r.GetEntityId() != "" && c.Types == authz.One {
		c.IDs, c.ID = authz.One, r.GetEntityId()
	}
}

// ofType targets an entity type but none of its entities.
func ofType(m any, c *authz.Call) {
	ofTypeAndItsEntities(m, c)
	c.IDs = authz.Nothing
}

// ofTypeAndItsEntities targets all entities of the type that a request
// names, or everything if it names no type.
func ofTypeAndItsEntities(m any, c *authz.Call) {
	ofEverything(m, c)
	if r, ok := m.(interface{ GetEntityType() string }); ok && r.GetEntityType() != "" {
		c.Types, c.Type = authz.One, r.GetEntityType()
	}
}

func ofListing(m any, c *authz.Call) {
	ofTypeAndItsEntities(m, c)
	if r, ok := m.(interface{ GetIdPrefix() string }); ok {
		c.ID = r.GetIdPrefix()
	}
}

func ofEverything(_ any, c *authz.Call) { c.Types, c.IDs = authz.Beginning, authz.Beginning }
