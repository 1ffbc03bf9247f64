package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"runtime/debug"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/validate"
	"google.golang.org/protobuf/reflect/protoreflect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/codec"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/profiling"
	"github.com/hostd/hostd/host/rpc/rollout"
)

// newHandler mounts every service and endpoint.
func newHandler(deps Deps, opts Options, guard *admission.Streams, waiting *admission.Waiting) (http.Handler, *moduleService) {
	count := newMetrics(opts.Registerer)
	deps.Types = nearTypes{deps.Types, opts.Roles}
	known := encodings{deps.Types}
	proxy := leaderproxy.New(deps.Nodes)
	e := deps.Entity
	e.Types, e.View, e.Self, e.Admin, e.Proxy, e.Streams, e.Waiting = known, deps.Cluster.View, opts.NodeID, opts.Admin, proxy, guard, waiting
	e.Arrivals, e.Deadline = admission.NewArrivals(opts.Pauses), admission.Deadlines{Standard: opts.DefaultDeadline, Longest: opts.MaxDeadline}
	e.Auth, e.Quotas, e.Log, e.Registerer, e.MaxInFlight, e.MaxBytes = opts.Roles, opts.Quotas, opts.Logger, opts.Registerer, opts.MaxStreamInFlight, int64(opts.MaxStreamBytes)
	entities := entityapi.NewHandler(e)
	count.watch(opts.Registerer, waiting)
	service := &moduleService{
		modules: deps.Modules, owners: owners{deps.Modules, opts.Roles}, types: deps.Types, log: opts.Logger,
		uploads: admission.NewUploads(opts.MaxUploads), guard: guard,
		fits: deps.Fits, timers: entities.Timers(), rollouts: rollout.Service{Rollouts: deps.Rollouts},
		verify: verifyService{verifications: deps.Verifications, proxy: proxy, guard: guard, entities: deps.Entity.Entities},
	}
	if allow := service.owners.allow(); allow != nil {
		service.rollouts.Allow = func(ctx context.Context, entityType, owner string, types []string) (string, error) {
			return allow(ctx, modules.Rebinding{EntityType: entityType, Owner: owner, Types: types})
		}
	}
	view := deps.Cluster
	view.Owners, view.Lines, view.CheckType, view.Guests = service.owners, deps.Lines, known.Known, deps.Guests
	view.Self, view.Proxy, view.Streams, view.Auth, view.Callers, view.Log = opts.NodeID, proxy, guard, opts.Roles, opts.Auth, opts.Logger
	clusters := clusterapi.NewHandler(view)

	outermost := []connect.Interceptor{admission.Decoding{}, count}
	if opts.Traces != nil {
		outermost = append(outermost, opts.Traces)
	}
	var innermost []connect.Interceptor
	if opts.Audit != nil {
		outermost = append(outermost, opts.Audit.Outcomes())
		innermost = append(innermost, opts.Audit.Changes())
	}
	if opts.Auth != nil {
		outermost = append(outermost, opts.Auth.Streams())
	}
	if opts.Roles != nil {
		outermost = append(outermost, opts.Roles.Interceptor())
	}
	if opts.Quotas != nil {
		outermost = append(outermost, opts.Quotas.Interceptor(opts.Logger))
	}
	common := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(opts.MaxMessageBytes),
		// Requests may not be compressed: decompression can cost the server
		// thousands of times what the request costs the sender, and the API is
		// meant for nearby networks and small messages.
		connect.WithCompression("gzip", nil, nil),
		connect.WithInterceptors(outermost...),
		connect.WithRecover(recoverPanic(opts.Logger)),
	)
	unary := connect.WithHandlerOptions(
		common,
		connect.WithCodec(codec.Unary{As: "json"}), connect.WithCodec(codec.Unary{As: "json; charset=utf-8"}),
		connect.WithInterceptors(e.Deadline),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			return perProcedure(spec, opts)
		}),
	)
	guarded := append([]connect.Interceptor{permission{full: opts.Admin, log: opts.Logger}}, innermost...)
	mux := http.NewServeMux()
	mount := func(path string, h http.Handler) { mux.Handle(path, h) }
	_, h := entityv1connect.NewEntityServiceHandler(entities, unary, connect.WithInterceptors(innermost...))
	mountService(mux, entityv1.File_hostd_entity_v1_entity_proto.Services().Get(0), map[string]http.Handler{
		entityv1connect.EntityServiceSendStreamProcedure: connect.NewBidiStreamHandler(
			entityv1connect.EntityServiceSendStreamProcedure, entities.Commands().Serve, common,
			connect.WithCodec(wire.Codec{}), connect.WithCodec(codec.Stream{As: "json"}), connect.WithCodec(codec.Stream{As: "json; charset=utf-8"})),
	}, h)
	_, h = modulev1connect.NewModuleServiceHandler(service, unary, connect.WithInterceptors(innermost...))
	mountService(mux, modulev1.File_hostd_module_v1_module_proto.Services().Get(0), nil, h)
	_, h = clusterv1connect.NewClusterServiceHandler(clusters, unary, connect.WithInterceptors(guarded...))
	mountService(mux, clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0), nil, h)
	_, h = journalv1connect.NewJournalServiceHandler(newTransferHandler(deps, opts, guard), unary, connect.WithInterceptors(guarded...))
	mountService(mux, journalv1.File_hostd_journal_v1_journal_proto.Services().Get(0), nil, h)

	names := []string{entityv1connect.EntityServiceName, modulev1connect.ModuleServiceName, clusterv1connect.ClusterServiceName, journalv1connect.JournalServiceName}
	reflector := grpcreflect.NewStaticReflector(append(names, grpchealth.HealthV1ServiceName)...)
	mount(grpcreflect.NewHandlerV1(reflector, common))
	mount(grpcreflect.NewHandlerV1Alpha(reflector, common))
	mount(grpchealth.NewHandler(&healthChecker{ready: opts.Ready, services: names}, common))
	mountPlain(mux, opts)
	var mayUpload func(context.Context) error
	if opts.Quotas != nil {
		mayUpload = opts.Quotas.MayUpload
	}
	bounded := admission.Bodies(cleanPaths(mux), admission.BodyOptions{
		MessageBytes: opts.MaxMessageBytes, UploadBytes: opts.MaxUploadBytes, Waiting: waiting,
		Decodes: admission.NewDecodes(4 * runtime.GOMAXPROCS(0)), Uploads: service.uploads, MayUpload: mayUpload, Services: publicServices(), Log: opts.Logger,
	})
	if opts.Roles != nil {
		bounded = opts.Roles.ByHeaders(bounded)
	}
	return admission.ContentTypes(bounded), service
}

// publicServices returns the services that clients call.
func publicServices() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{
		entityv1.File_hostd_entity_v1_entity_proto.Services().Get(0), modulev1.File_hostd_module_v1_module_proto.Services().Get(0),
		clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0), journalv1.File_hostd_journal_v1_journal_proto.Services().Get(0),
	}
}

// Audited returns the options of the audit log for calls of this API.
func Audited(all, goOn bool) audit.CallOptions {
	return audit.CallOptions{Services: publicServices(), All: all, Continue: goOn, Passed: func(ctx context.Context) (string, *principal.Principal) {
		return string(leaderproxy.NodeOf(ctx)), leaderproxy.Caller(ctx)
	}}
}

// mountService mounts every procedure of a service: on its handler in own if
// there is one, on rest otherwise.
func mountService(mux *http.ServeMux, service protoreflect.ServiceDescriptor, own map[string]http.Handler, rest http.Handler) {
	for i := range service.Methods().Len() {
		procedure := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(i).Name())
		if h := own[procedure]; h != nil {
			mux.Handle(procedure, h)
		} else {
			mux.Handle(procedure, rest)
		}
	}
}

// perProcedure returns the options that differ between procedures. Uploads may
// be larger. Send and Query, which are the hot path, check their input by hand,
// because evaluating the validation rules of the protos takes many times as
// long.
func perProcedure(spec connect.Spec, opts Options) []connect.HandlerOption {
	var out []connect.HandlerOption
	switch spec.Procedure {
	case entityv1connect.EntityServiceSendProcedure, entityv1connect.EntityServiceQueryProcedure:
	default:
		out = append(out, connect.WithInterceptors(validate.NewInterceptor()))
	}
	if admission.IsUpload(spec.Procedure) {
		out = append(out, connect.WithReadMaxBytes(opts.MaxUploadBytes))
	}
	return out
}

// recoverPanic logs a panic in a handler and turns it into an internal error.
func recoverPanic(log *slog.Logger) func(context.Context, connect.Spec, http.Header, any) error {
	return func(_ context.Context, spec connect.Spec, _ http.Header, p any) error {
		log.Error("handler panicked", "procedure", spec.Procedure, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		return connect.NewError(connect.CodeInternal, errors.New("internal error"))
	}
}

// mountPlain adds the endpoints that are not RPCs, and the response to calls of
// unknown procedures.
func mountPlain(mux *http.ServeMux, opts Options) {
	mux.HandleFunc("GET "+admission.LivePath, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET "+admission.ReadyPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := opts.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ok\n")
		if said := opts.Remarks(); said != "" {
			io.WriteString(w, said+"\n")
		}
	})
	if opts.Metrics != nil {
		mux.Handle("GET "+admission.MetricsPath, opts.Metrics)
	}
	if opts.Debug {
		profiles := profiling.Local()
		if opts.Roles != nil {
			profiles = opts.Roles.ForAdmins(profiles, opts.Logger)
		}
		mux.Handle(profiling.Path, profiles)
	}
	unknown := connect.NewErrorWriter()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && unknown.IsSupported(r) {
			unknown.Write(w, r, connect.NewError(connect.CodeUnimplemented, errors.New("there is no such procedure")))
			return
		}
		http.NotFound(w, r)
	})
}

// cleanPaths answers 404 to paths that are not in clean form. A ServeMux would
// redirect such a path, for example //e/counter/a%2Fb, to its clean form and
// escape it a second time, so that the caller would reach a different entity.
func cleanPaths(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; p != path.Clean(p) && p != path.Clean(p)+"/" {
			r = r.WithContext(r.Context()) // a shallow copy: the original request must not change
			r.URL = &url.URL{Path: "/"}    // no handler is mounted here
		}
		mux.ServeHTTP(w, r)
	})
}

// healthChecker answers the gRPC health service from the node's readiness.
type healthChecker struct {
	ready    func() error
	services []string
}

// Check implements grpchealth.Checker. The empty service name means the whole
// node.
func (h *healthChecker) Check(_ context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	known := r.Service == ""
	for _, s := range h.services {
		known = known || s == r.Service
	}
	if !known {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no such service"))
	}
	if h.ready() != nil {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
