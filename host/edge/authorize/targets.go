package authorize

import (
	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/procedure"
)

// calls resolves what a request is about: one call, or one for each type of a
// module. All of them must be allowed.
func (a *Authorizer) calls(t *procedure.Procedure, m any) []authz.Call {
	c := authz.Call{Verb: t.Verb}
	switch {
	case t.Scope == procedure.OfModules:
		return a.ofModule(m, c)
	case t.Of != nil:
		t.Of(m, &c)
	}
	return []authz.Call{c}
}

// ofModule returns a call for each type that the named module describes,
// which concerns all entities of the type if the call reads entities. If the
// request names a type, the module is the one that serves this type. If this
// node does not know the module, ofModule returns a call that concerns
// everything.
func (a *Authorizer) ofModule(m any, c authz.Call) []authz.Call {
	if c.Verb == authv1.Verb_READ {
		c.IDs = authz.Beginning
	}
	c.Types = authz.One
	var out []authz.Call
	if r, ok := m.(interface{ GetEntityType() string }); ok && r.GetEntityType() != "" {
		c.Type = r.GetEntityType()
		out = append(out, c)
		for _, t := range a.opts.Cluster.ServedWith(r.GetEntityType()) {
			if c.Type = t; t != r.GetEntityType() {
				out = append(out, c)
			}
		}
		return out
	}
	if r, ok := m.(interface{ GetDigest() string }); ok {
		for _, t := range a.opts.Cluster.TypesOf(r.GetDigest()) {
			c.Type = t
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		c.Types = authz.Beginning
		out = append(out, c)
	}
	return out
}
