package edge

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/plainhttp"
)

// API has the handlers that a server mounts.
type API struct {
	Services []Service
	// Types and Entities give the plain HTTP interface the encodings of the
	// entity types and the number of shards.
	Types    plainhttp.Types
	Entities plainhttp.Entities
}

// Service is a service of the API. The server knows nothing else about it, except
// its procedures in package procedure.
type Service struct {
	Descriptor protoreflect.ServiceDescriptor
	// Handler makes the handler of all procedures.
	Handler Mount
	// Streams make the handlers of the procedures that decode their messages
	// themselves, which Handler then does not serve.
	Streams []Mount
	// AdminOnly: without roles, the option Admin of the server decides whether
	// callers may use the procedures that have side effects.
	AdminOnly bool
}

// Mount makes the handler of a service or of one procedure, and returns the path
// that it serves.
type Mount func(opts ...connect.HandlerOption) (path string, h http.Handler)

// NewMount returns a Mount for a handler and the generated function that accepts it.
func NewMount[H any](generated func(H, ...connect.HandlerOption) (string, http.Handler), handler H) Mount {
	return func(opts ...connect.HandlerOption) (string, http.Handler) { return generated(handler, opts...) }
}

// mount mounts every procedure of the service.
func (s *Service) mount(mux *http.ServeMux, stream, rest connect.HandlerOption) {
	own := map[string]http.Handler{}
	for _, m := range s.Streams {
		path, h := m(stream)
		own[path] = h
	}
	_, shared := s.Handler(rest)
	for i := range s.Descriptor.Methods().Len() {
		procedure := "/" + string(s.Descriptor.FullName()) + "/" + string(s.Descriptor.Methods().Get(i).Name())
		if h := own[procedure]; h != nil {
			mux.Handle(procedure, h)
		} else {
			mux.Handle(procedure, shared)
		}
	}
}

func descriptors(services []Service) (out []protoreflect.ServiceDescriptor) {
	for _, s := range services {
		out = append(out, s.Descriptor)
	}
	return out
}

// Shared holds the options and limits that a server shares with its services.
// Options that were zero have their defaults.
type Shared struct {
	Options   Options
	Streams   *admission.Streams
	Waiting   *admission.Waiting
	Uploads   *admission.Uploads
	Arrivals  admission.Arrivals
	Deadlines admission.Deadlines
}

// Shared returns what services share with the server.
func (s *Server) Shared() Shared {
	return Shared{Options: s.opts, Streams: s.guard, Waiting: s.waiting, Uploads: s.uploads, Arrivals: admission.NewArrivals(s.opts.Pauses), Deadlines: s.deadlines()}
}

func (s *Server) deadlines() admission.Deadlines {
	return admission.Deadlines{Standard: s.opts.DefaultDeadline, Longest: s.opts.MaxDeadline}
}
