package authorize

import (
	"testing"

	"google.golang.org/protobuf/types/dynamicpb"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/authz"
)

// TestProceduresSayWhatTheyAreAbout: one whose request names a type, or that is
// about what entities do, has a line, and no line is of anything else.
func TestProceduresSayWhatTheyAreAbout(t *testing.T) {
	all := targets()
	for name := range about {
		if _, known := all[name]; !known {
			t.Errorf("%s is no procedure", name)
		}
	}
	for _, s := range services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			name := "/" + string(s.FullName()) + "/" + string(m.Name())
			fields := m.Input().Fields()
			named := fields.ByName("entity_type") != nil || fields.ByName("entity_id") != nil
			switch all[name].verb {
			case authv1.Verb_VERB_UNSPECIFIED:
				t.Errorf("%s has no verb", name)
			case authv1.Verb_SELF: // decided whatever it is about
				continue
			case authv1.Verb_INVOKE, authv1.Verb_QUERY, authv1.Verb_OPERATE, authv1.Verb_EXPORT:
				named = true
			}
			line := about[name]
			if named && line.of == nil && !line.later {
				t.Errorf("%s is about entities: say which", name)
			}
			if line.of == nil {
				continue
			}
			var c authz.Call
			line.of(dynamicpb.NewMessage(m.Input()).Interface(), &c)
			if c != (authz.Call{}) && c.Types == authz.Nothing {
				t.Errorf("%s is about ids of no type: %+v", name, c)
			}
		}
	}
}
