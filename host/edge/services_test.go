package edge_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoreflect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/tests/support/rpctest"
)

func TestModules(t *testing.T) {
	s := serve(t, edge.Options{})
	upload := `{"wasm":"` + b64("\x00asm-one") + `"}`
	status, first := s.post(t, modulePath+"UploadModule", upload)
	if status != 200 || !strings.Contains(first, `"uploaded"`) {
		t.Fatalf("status %d: %s", status, first)
	}
	if _, again := s.post(t, modulePath+"UploadModule", upload); again != first {
		wantJSON(t, again, first)
	}
	c := modulev1connect.NewModuleServiceClient(s.h2, s.url)
	two, err := c.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-two"), Activate: true}))
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ListModules(t.Context(), connect.NewRequest(&modulev1.ListModulesRequest{}))
	if err != nil || len(list.Msg.GetModules()) != 2 {
		t.Fatal(list, err)
	}
	newest := list.Msg.GetModules()[0]
	if newest.GetDigest() != two.Msg.GetDigest() || newest.GetSizeBytes() != 8 || strings.Join(newest.GetActiveFor(), " ") != "uploaded" {
		t.Errorf("newest: %v", newest)
	}
	if oldest := list.Msg.GetModules()[1]; len(oldest.GetActiveFor()) != 0 {
		t.Errorf("oldest: %v", oldest)
	}
	byType, err := c.GetModule(t.Context(), connect.NewRequest(&modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_EntityType{EntityType: "uploaded"}}))
	if err != nil || byType.Msg.GetModule().GetDigest() != two.Msg.GetDigest() || byType.Msg.GetManifest().AsMap()["abi"] != 1.0 {
		t.Errorf("by type: %v, %v", byType, err)
	}
	status, body := s.post(t, modulePath+"ActivateModule", `{"entityType":"uploaded","digest":"`+list.Msg.GetModules()[1].GetDigest()+`"}`)
	if status != 200 {
		t.Fatalf("status %d: %s", status, body)
	}
	wantJSON(t, body, `{"revision":"7"}`)
	download, err := c.DownloadModule(t.Context(), connect.NewRequest(&modulev1.DownloadModuleRequest{Digest: two.Msg.GetDigest()}))
	if err != nil {
		t.Fatal(err)
	}
	var wasm []byte
	for download.Receive() {
		wasm = append(wasm, download.Msg().GetWasm()...)
	}
	if err := download.Err(); err != nil || string(wasm) != "\x00asm-two" {
		t.Errorf("download: %q, %v", wasm, err)
	}
	// Protobuf's JSON encoder randomly adds spaces, depending on the program's
	// build.
	if _, body := s.post(t, modulePath+"GetQuotas", `{}`); !strings.Contains(strings.ReplaceAll(string(body), " ", ""), `"limit":{"modules":"100","bytes":"1048576","ownModules":"10"}`) || !strings.Contains(strings.ReplaceAll(string(body), " ", ""), `"retention":"3600s"`) {
		t.Errorf("quotas: %s", body)
	}
	unknown := strings.Repeat("ab", 32)
	for _, c := range []struct {
		path, body string
		code       connect.Code
	}{
		{"UploadModule", `{}`, connect.CodeInvalidArgument},
		{"UploadModule", `{"wasm":"AAAA"}`, connect.CodeInvalidArgument},
		{"GetModule", `{}`, connect.CodeInvalidArgument},
		{"GetModule", `{"digest":"xyz"}`, connect.CodeInvalidArgument},
		{"GetModule", `{"digest":"` + unknown + `"}`, connect.CodeNotFound},
		{"GetModule", `{"entityType":"nothing"}`, connect.CodeNotFound},
		{"ActivateModule", `{"entityType":"uploaded","digest":"` + unknown + `"}`, connect.CodeNotFound},
		{"ActivateModule", `{"entityType":"UP","digest":"` + unknown + `"}`, connect.CodeInvalidArgument},
		{"ActivateModule", `{"entityType":"other","digest":"` + two.Msg.GetDigest() + `"}`, connect.CodeInvalidArgument},
		{"DeleteModule", `{"digest":"xyz"}`, connect.CodeInvalidArgument},
		{"DeleteModule", `{"digest":"` + unknown + `"}`, connect.CodeNotFound},
		{"RollbackModule", `{"entityType":"nothing"}`, connect.CodeNotFound},
		{"RollbackModule", `{"entityType":"UP"}`, connect.CodeInvalidArgument},
		{"RollbackModule", `{"entityType":"uploaded","revision":"3"}`, connect.CodeFailedPrecondition},
	} {
		_, body := s.post(t, modulePath+c.path, c.body)
		wantCode(t, body, c.code)
	}
}

// TestLargeModulesAreDownloadedInPieces: a module of up to 16 MiB is
// downloaded in messages that a gRPC client accepts, which are at most 4 MiB
// by default.
func TestLargeModulesAreDownloadedInPieces(t *testing.T) {
	s := serve(t, edge.Options{})
	wasm := append([]byte("\x00asm-large"), bytes.Repeat([]byte("x"), 15<<20)...)
	up, err := modulev1connect.NewModuleServiceClient(s.h2, s.url).UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: wasm}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []modulev1connect.ModuleServiceClient{
		modulev1connect.NewModuleServiceClient(s.h2, s.url, connect.WithGRPC(), connect.WithReadMaxBytes(4<<20)),
		modulev1connect.NewModuleServiceClient(http.DefaultClient, s.url, connect.WithReadMaxBytes(4<<20)),
	} {
		in, err := c.DownloadModule(t.Context(), connect.NewRequest(&modulev1.DownloadModuleRequest{Digest: up.Msg.GetDigest()}))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for in.Receive() {
			got = append(got, in.Msg().GetWasm()...)
		}
		if err := in.Err(); err != nil || !bytes.Equal(got, wasm) {
			t.Errorf("%d bytes of %d, %v", len(got), len(wasm), err)
		}
	}
	in, err := modulev1connect.NewModuleServiceClient(s.h2, s.url).DownloadModule(t.Context(), connect.NewRequest(&modulev1.DownloadModuleRequest{Digest: strings.Repeat("ab", 32)}))
	if err != nil || in.Receive() || connect.CodeOf(in.Err()) != connect.CodeNotFound {
		t.Errorf("of a module that is not there: %v, %v", err, in.Err())
	}
}

// TestEveryProcedureIsServed: each rpc of the protos is served, and reads also
// by GET. Calls that the node does not support are unimplemented.
func TestEveryProcedureIsServed(t *testing.T) {
	s := serve(t, edge.Options{})
	for _, file := range []protoreflect.FileDescriptor{
		entityv1.File_hostd_entity_v1_entity_proto, modulev1.File_hostd_module_v1_module_proto, clusterv1.File_hostd_cluster_v1_cluster_proto,
	} {
		service := file.Services().Get(0)
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			if method.IsStreamingClient() || method.IsStreamingServer() {
				continue
			}
			path := "/" + string(service.FullName()) + "/" + string(method.Name())
			status, body := s.post(t, path, `{}`)
			if status == 404 && !strings.Contains(body, `"not_found"`) || strings.Contains(body, "unknown procedure") {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	}
}

// TestReflection: a tool without the protos finds the services.
func TestReflection(t *testing.T) {
	s := serve(t, edge.Options{})
	stream := grpcreflect.NewClient(s.h2, s.url).NewStream(t.Context())
	services, err := stream.ListServices()
	if err != nil || len(services) != 6 {
		t.Errorf("services %v, %v", services, err)
	}
	files, err := stream.FileContainingSymbol("hostd.entity.v1.EntityService")
	if err != nil || len(files) == 0 || files[0].GetName() != "hostd/entity/v1/entity.proto" {
		t.Errorf("files %v, %v", files, err)
	}
	if _, err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// TestShutdown: calls in flight are answered, streams end after what they have
// read is answered, and following streams end with unavailable.
func TestShutdown(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := services.NewServer(w.Services(), edge.Options{NodeID: "n1"})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &site{world: w, url: "http://" + l.Addr().String(), h2: &http.Client{Transport: &http.Transport{Protocols: protocols}}}
	defer s.h2.CloseIdleConnections()

	stream := s.entities().SendCommandStream(t.Context())
	stream.Send(message(1, add("a", 1)))
	collect(t, stream, 1)
	follow, err := s.entities().ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: "counter", EntityId: "a", Follow: true}))
	if err != nil || !follow.Receive() {
		t.Fatal(err, follow.Err())
	}
	w.Pause()
	stream.Send(message(2, add("a", 2)))
	unary := make(chan error, 1)
	go func() {
		_, err := s.entities().SendCommand(context.Background(), connect.NewRequest(add("a", 4)))
		unary <- err
	}()
	eventually(t, "both commands to arrive", func() bool { now, _, _ := w.Queued(); return now == 2 })
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	}()
	for follow.Receive() {
	}
	if connect.CodeOf(follow.Err()) != connect.CodeUnavailable {
		t.Errorf("the following stream: %v", follow.Err())
	}
	w.Resume()
	if a := collect(t, stream, 1)[0]; a.GetResponse() == nil {
		t.Errorf("the command in flight: %v", a)
	}
	if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the stream: %v", err)
	}
	if err := <-unary; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := errors.Join(<-stopped, <-ended); err != nil {
		t.Error(err)
	}
}

func TestOptionsValidate(t *testing.T) {
	if err := (edge.Options{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	err := edge.Options{MaxConns: -1, MaxStreams: -2, DefaultDeadline: time.Minute}.Validate()
	for _, want := range []string{"MaxConns", "MaxStreams", "DefaultDeadline must not exceed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// panics is a registry of types whose lookup panics.
type panics struct{}

func (panics) Names() []string { return nil }

func (panics) Lookup(context.Context, string) (modules.Type, error) {
	panic("index out of range in types.go")
}

// TestPanicIsInternal: a panic in a handler fails its call, reveals nothing to
// the caller, and leaves the server running.
func TestPanicIsInternal(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	deps := w.Services()
	deps.Module.Types = panics{}
	var logged strings.Builder
	server := httptest.NewServer(services.NewServer(deps, edge.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}).Handler())
	defer server.Close()
	s := &site{world: w, url: server.URL}
	for range 2 {
		status, body := s.post(t, entityPath+"SendCommand", `{"entityType":"counter","entityId":"a","command":"add"}`)
		if status != 500 || strings.Contains(body, "index") {
			t.Errorf("status %d: %s", status, body)
		}
		wantCode(t, body, connect.CodeInternal)
	}
	http.DefaultClient.CloseIdleConnections()
	if !strings.Contains(logged.String(), "index out of range") {
		t.Errorf("logged: %s", logged.String())
	}
}

// TestStreamsOutliveTimeouts: the time limits of calls do not apply to a stream
// that is idle for longer.
func TestStreamsOutliveTimeouts(t *testing.T) {
	if testing.Short() {
		t.Skip("waits longer than the server's timeouts")
	}
	s := serve(t, edge.Options{MaxDeadline: 400 * time.Millisecond, DefaultDeadline: 400 * time.Millisecond})
	stream := s.entities().SendCommandStream(t.Context())
	stream.Send(message(1, add("a", 1)))
	collect(t, stream, 1)
	follow, err := s.entities().ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: "counter", EntityId: "b", Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(6500 * time.Millisecond) // the timeouts are 5.4 s and 5.8 s
	stream.Send(message(2, add("b", 2)))
	collect(t, stream, 1)
	if !follow.Receive() || follow.Msg().GetSequence() != 1 {
		t.Errorf("the following stream: %v, %v", follow.Msg(), follow.Err())
	}
	stream.CloseRequest()
	if _, err := stream.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream: %v", err)
	}
	follow.Close()
}
