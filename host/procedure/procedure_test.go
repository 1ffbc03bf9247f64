package procedure

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
)

// naming are the fields of requests that name an entity type, or something that
// belongs to one.
var naming = []protoreflect.Name{"entity_type", "entity_id", "digest", "key", "key_prefix"}

// TestEveryProcedureHasOneKindOfTarget: every procedure has exactly one kind of
// target, and a procedure whose request names a type, a module or a setting must
// not be about nothing.
func TestEveryProcedureHasOneKindOfTarget(t *testing.T) {
	for path := range table {
		if At(path) == nil {
			t.Errorf("%s is no procedure", path)
		}
	}
	eachMethod(func(path string, m protoreflect.MethodDescriptor) {
		line, listed := table[path]
		if !listed || (line.Of != nil) == (line.Scope != byRequest) {
			t.Errorf("%s says nothing, or two things, about what it is about", path)
		}
		verb := At(path).Verb
		if verb == authv1.Verb_VERB_UNSPECIFIED {
			t.Errorf("%s has no verb: set the option (hostd.auth.v1.verb)", path)
		}
		if line.Scope != OfNothing || verb == authv1.Verb_SELF {
			return
		}
		for _, field := range naming {
			if m.Input().Fields().ByName(field) != nil {
				t.Errorf("%s has %s and is about nothing", path, field)
			}
		}
		switch verb {
		case authv1.Verb_INVOKE, authv1.Verb_QUERY, authv1.Verb_OPERATE, authv1.Verb_EXPORT, authv1.Verb_DEPLOY, authv1.Verb_DOWNLOAD:
			t.Errorf("%s is about nothing", path)
		}
	})
}

// TestStreamsOutliveTimeouts: in every streaming procedure, the server may send
// for as long as the client reads.
func TestStreamsOutliveTimeouts(t *testing.T) {
	streams := 0
	eachMethod(func(path string, m protoreflect.MethodDescriptor) {
		if !m.IsStreamingServer() {
			return
		}
		streams++
		if !At(path).LongLived {
			t.Errorf("%s is cut when the server's timeout for answers is over", path)
		}
	})
	if streams < 10 {
		t.Errorf("%d procedures stream", streams)
	}
}

func eachMethod(visit func(path string, m protoreflect.MethodDescriptor)) {
	for _, s := range Services() {
		for i := range s.Methods().Len() {
			visit(PathOf(s.Methods().Get(i)), s.Methods().Get(i))
		}
	}
}
