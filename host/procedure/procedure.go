// Package procedure has the table of the procedures of the API: the verb that a
// caller needs, what a call is about, and what it may take of the node. The edge
// looks procedures up in it, so that it needs to know no service.
//
// The verb, the side effects and the direction of streams are options of the
// protos; the rest is in the table. It is immutable.
package procedure

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
)

// Procedure describes one procedure.
type Procedure struct {
	Verb    authv1.Verb
	Changes bool // it has side effects
	// Scope and Of say what a call is about. Without an entry in the table it is
	// about everything, so that every deny rule applies to it.
	Scope Scope
	Of    target
	// Narrows: if the caller may see only a part of a listing, the listing is
	// restricted to that part.
	Narrows bool
	// Frequent: the context of the calls is not marked as decided by roles.
	Frequent bool

	// LongLived: the server's timeouts do not apply, because the server
	// streams messages. Input: the timeout for reading does not apply
	// either.
	LongLived, Input bool
	// OwnCodec: the service decodes the messages itself.
	OwnCodec bool
	// HandChecked: the service checks the message and its deadline by hand,
	// because evaluating the rules of the protos and a context with a deadline
	// cost many times as much.
	HandChecked bool
	// Compiles: the call may compile a module, which counts for the caller's
	// quota. Slow: for that reason it may last longer than other calls. Upload: its
	// single message is the module. Pieces: its messages are pieces of the module.
	Compiles, Slow, Upload, Pieces bool
	// BeforeOpen: the node accepts the call before it belongs to a cluster.
	BeforeOpen bool
}

// Services returns the services that clients call: those of entities, workflows,
// modules, the cluster and the journal.
func Services() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{
		entityv1.File_hostd_entity_v1_entity_proto.Services().Get(0), workflowv1.File_hostd_workflow_v1_workflow_proto.Services().Get(0), modulev1.File_hostd_module_v1_module_proto.Services().Get(0),
		clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0), journalv1.File_hostd_journal_v1_journal_proto.Services().Get(0),
	}
}

// all has the procedures of all services by path.
var all = func() map[string]*Procedure {
	out := map[string]*Procedure{}
	for _, s := range Services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			p, listed := table[PathOf(m)]
			if !listed {
				p.Of = ofEverything
			}
			p.Verb, p.Changes = VerbOf(m), !withoutEffect(m)
			p.Input = m.IsStreamingClient() && !p.Pieces
			p.LongLived = m.IsStreamingServer() || p.Input
			out[PathOf(m)] = &p
		}
	}
	return out
}()

// At returns the procedure with a path, or nil if there is none.
func At(path string) *Procedure { return all[path] }

// All calls visit for every procedure.
func All(visit func(path string, p *Procedure)) {
	for path, p := range all {
		visit(path, p)
	}
}

// PathOf returns the path of an rpc.
func PathOf(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// VerbOf returns the verb declared for an rpc.
func VerbOf(m protoreflect.MethodDescriptor) authv1.Verb {
	options, _ := m.Options().(*descriptorpb.MethodOptions)
	verb, _ := proto.GetExtension(options, authv1.E_Verb).(authv1.Verb)
	return verb
}

// withoutEffect reports whether the proto marks a procedure with
// NO_SIDE_EFFECTS.
func withoutEffect(m protoreflect.MethodDescriptor) bool {
	o, ok := m.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}
