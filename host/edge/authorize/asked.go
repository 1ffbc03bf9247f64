package authorize

import (
	"strings"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/sharding/access"
)

// CallOf returns the authz.Call that a CheckAccess request asks about, in the form in
// which the procedures of its verb make it. Without a verb it is the call that
// every caller may make. It returns false if the verb does not exist. Calls with
// the verbs deploy, download and settings concern types but none of their
// entities; all other calls that name a type concern its entities too.
func CallOf(m *clusterv1.CheckAccessRequest) (c authz.Call, known bool) {
	if m.GetVerb() == "" {
		return authz.Call{Verb: authv1.Verb_SELF}, true
	}
	for v := range authv1.Verb_name {
		if v != 0 && authz.VerbText(authv1.Verb(v)) == m.GetVerb() {
			c.Verb = authv1.Verb(v)
		}
	}
	entities, everything := false, false
	switch c.Verb {
	case 0:
		return c, false
	case authv1.Verb_INVOKE, authv1.Verb_QUERY, authv1.Verb_OPERATE, authv1.Verb_EXPORT:
		entities, everything = true, true // these verbs have no call without a type
	case authv1.Verb_READ, authv1.Verb_ADMIN:
		entities = true
	}
	switch t, open := strings.CutSuffix(m.GetEntityType(), access.Any); {
	case open:
		c.Types, c.Type = authz.Beginning, t
	case t != "":
		c.Types, c.Type = authz.One, t
	case everything:
		c.Types = authz.Beginning
	}
	switch id := m.GetEntityId(); {
	case id != "":
		c.IDs, c.ID = authz.One, id
	case entities && c.Types != authz.Nothing:
		c.IDs = authz.Beginning
	}
	c.Command = m.GetCommand()
	return c, true
}
