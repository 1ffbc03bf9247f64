package edge

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
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/validate"

	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/procedure"
)

// newHandler mounts every service and endpoint.
func (s *Server) newHandler(services []Service) http.Handler {
	opts, count := s.opts, newMetrics(s.opts.Registerer)
	count.watch(opts.Registerer, s.waiting)
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
		connect.WithInterceptors(s.deadlines()),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			return perProcedure(spec, opts)
		}),
	)
	guarded := append([]connect.Interceptor{permission{full: opts.Admin, log: opts.Logger}}, innermost...)
	mux := http.NewServeMux()
	mount := func(path string, h http.Handler) { mux.Handle(path, h) }
	var names []string
	for _, service := range services {
		last := innermost
		if service.AdminOnly {
			last = guarded
		}
		service.mount(mux, common, connect.WithHandlerOptions(unary, connect.WithInterceptors(last...)))
		names = append(names, string(service.Descriptor.FullName()))
	}
	reflector := grpcreflect.NewStaticReflector(append(slices.Clone(names), grpchealth.HealthV1ServiceName)...)
	mount(grpcreflect.NewHandlerV1(reflector, common))
	mount(grpcreflect.NewHandlerV1Alpha(reflector, common))
	mount(grpchealth.NewHandler(&healthChecker{node: opts.Node, services: names}, common))
	mountPlain(mux, opts)
	var mayUpload func(context.Context) error
	if opts.Quotas != nil {
		mayUpload = opts.Quotas.MayUpload
	}
	bounded := admission.Bodies(cleanPaths(mux), admission.BodyOptions{
		MessageBytes: opts.MaxMessageBytes, UploadBytes: opts.MaxUploadBytes, Waiting: s.waiting,
		Decodes: admission.NewDecodes(4 * runtime.GOMAXPROCS(0)), Uploads: s.uploads, MayUpload: mayUpload, Services: descriptors(services), Log: opts.Logger,
	})
	if opts.Roles != nil {
		bounded = opts.Roles.ByHeaders(bounded)
	}
	return admission.ContentTypes(bounded)
}

// perProcedure returns the options that differ between procedures. Uploads may
// be larger. SendCommand and QueryEntity, which are the hot path, check their
// input by hand, because evaluating the validation rules of the protos needs many
// times as long.
func perProcedure(spec connect.Spec, opts Options) []connect.HandlerOption {
	var out []connect.HandlerOption
	p := procedure.At(spec.Procedure)
	if p == nil || !p.HandChecked {
		out = append(out, connect.WithInterceptors(validate.NewInterceptor()))
	}
	if p != nil && p.Upload {
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
		if err := opts.Node.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ok\n")
		if said := opts.Node.Remarks(); said != "" {
			io.WriteString(w, said+"\n")
		}
	})
	if opts.Metrics != nil {
		mux.Handle("GET "+admission.MetricsPath, opts.Metrics)
	}
	if opts.Debug {
		profiles := localProfiles()
		if opts.Roles != nil {
			profiles = opts.Roles.ForAdmins(profiles, opts.Logger)
		}
		mux.Handle(profilesPath, profiles)
	}
	unknown := connect.NewErrorWriter()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && unknown.IsSupported(r) {
			unknown.Write(w, r, connect.NewError(connect.CodeUnimplemented, errors.New("unknown procedure")))
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
	node     node
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
		return nil, connect.NewError(connect.CodeNotFound, errors.New("unknown service"))
	}
	if h.node.Ready() != nil {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
