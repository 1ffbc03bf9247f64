package audit

import (
	"context"
	"encoding/json"
	"github.com/hostd/hostd/host/principal"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
)

// cluster is a service that answers some calls and counts them.
type cluster struct {
	clusterv1connect.UnimplementedClusterServiceHandler
	calls int
}

func (c *cluster) PutSetting(_ context.Context, req *connect.Request[clusterv1.PutSettingRequest]) (*connect.Response[clusterv1.PutSettingResponse], error) {
	c.calls++
	if req.Msg.GetKey() == "denied" {
		return nil, connect.NewError(connect.CodePermissionDenied, nil)
	}
	return connect.NewResponse(&clusterv1.PutSettingResponse{}), nil
}

func (c *cluster) GetCluster(context.Context, *connect.Request[clusterv1.GetClusterRequest]) (*connect.Response[clusterv1.GetClusterResponse], error) {
	return connect.NewResponse(&clusterv1.GetClusterResponse{}), nil
}

func (c *cluster) ListShards(context.Context, *connect.Request[clusterv1.ListShardsRequest]) (*connect.Response[clusterv1.ListShardsResponse], error) {
	return nil, connect.NewError(connect.CodePermissionDenied, nil)
}

// exports is a service that answers streams.
type exports struct {
	journalv1connect.UnimplementedJournalServiceHandler
}

func (exports) ExportJournal(_ context.Context, _ *connect.Request[journalv1.ExportJournalRequest], out *connect.ServerStream[journalv1.ExportJournalResponse]) error {
	return out.Send(&journalv1.ExportJournalResponse{Chunk: []byte("x")})
}

// policy is the revision of the roles that decides every call.
const policy = 7

// decided is an interceptor that records the revision, as authorization does.
type decided struct{}

func (decided) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		SetPolicyRevision(ctx, policy)
		return next(ctx, req)
	}
}

func (decided) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (decided) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		SetPolicyRevision(ctx, policy)
		return next(ctx, conn)
	}
}

// serve serves both services with an audit log. It returns the URL, and a
// function that closes the log and returns its lines.
func serve(t *testing.T, o CallOptions) (c *cluster, l *Log, at string, ended func() []line) {
	t.Helper()
	path := logPath(t)
	l, stop := started(t, Options{Path: path, Node: "n1"})
	o.Services = []protoreflect.ServiceDescriptor{
		clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0), journalv1.File_hostd_journal_v1_journal_proto.Services().Get(0),
	}
	calls := NewCalls(l, o)
	c = &cluster{}
	mux := http.NewServeMux()
	both := connect.WithInterceptors(calls.Outcomes(), decided{}, calls.Changes())
	mux.Handle(clusterv1connect.NewClusterServiceHandler(c, both))
	mux.Handle(journalv1connect.NewJournalServiceHandler(exports{}, both))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return c, l, server.URL, func() (out []line) {
		server.Close()
		stop()
		verified(t, path, uint64(strings.Count(read(t, path), "\n")))
		for text := range strings.Lines(read(t, path)) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatal(err)
			}
			out = append(out, l)
		}
		return out
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func never(context.Context) (string, *principal.Principal) { return "", nil }

// A change gets one line before it is made and one line afterwards. A
// rejected call gets one line. A read gets no line unless all calls are
// audited.
func TestCallsAreWritten(t *testing.T) {
	for _, all := range []bool{false, true} {
		_, _, at, ended := serve(t, CallOptions{All: all, Passed: never})
		clusters := clusterv1connect.NewClusterServiceClient(http.DefaultClient, at)
		ctx := t.Context()
		put := func(key string) error {
			_, err := clusters.PutSetting(ctx, connect.NewRequest(&clusterv1.PutSettingRequest{Key: key, Value: "payload"}))
			return err
		}
		if err := put("a"); err != nil {
			t.Fatal(err)
		}
		if err := put("denied"); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Fatal(err)
		}
		if _, err := clusters.GetCluster(ctx, connect.NewRequest(&clusterv1.GetClusterRequest{})); err != nil {
			t.Fatal(err)
		}
		if _, err := clusters.ListShards(ctx, connect.NewRequest(&clusterv1.ListShardsRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Fatal(err)
		}
		if _, err := clusters.DrainNode(ctx, connect.NewRequest(&clusterv1.DrainNodeRequest{NodeId: "n7"})); connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Fatal(err)
		}
		stream, err := journalv1connect.NewJournalServiceClient(http.DefaultClient, at).ExportJournal(ctx, connect.NewRequest(&journalv1.ExportJournalRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
		}
		if stream.Err() != nil {
			t.Fatal(stream.Err())
		}
		var got []string
		calls := map[string]int{}
		for _, l := range ended() {
			got = append(got, strings.Join([]string{l.Stage, l.Verb, l.Method[strings.LastIndexByte(l.Method, '/')+1:], l.Target, l.Code}, " "))
			if l.Call != "" {
				calls[l.Call]++
			}
			if l.Principal.Kind != "anonymous" || !strings.HasPrefix(l.Address, "127.0.0.1:") || l.Node != "n1" || l.Time.IsZero() || l.Policy != policy {
				t.Errorf("%+v", l)
			}
		}
		want := []string{
			"received settings PutSetting key=a ", "complete settings PutSetting key=a ok",
			"received settings PutSetting key=denied ", "complete settings PutSetting key=denied permission_denied",
			"complete read GetCluster  ok", "complete read ListShards  permission_denied",
			"received admin DrainNode node_id=n7 ", "complete admin DrainNode node_id=n7 unimplemented",
			"received export ExportJournal  ", "complete export ExportJournal  ok",
		}
		if !all {
			want = slices.Delete(want, 4, 5)
		}
		if !slices.Equal(got, want) {
			t.Errorf("all %v:\n%s\nwant\n%s", all, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for call, n := range calls {
			if n != 2 {
				t.Errorf("call %s has %d lines", call, n)
			}
		}
	}
}

// If the log cannot be written, a change is rejected and a read is not. With
// Continue, changes are made anyway.
func TestChangeIsRejectedIfLogCannotBeWritten(t *testing.T) {
	for _, goOn := range []bool{false, true} {
		c, l, at, ended := serve(t, CallOptions{Continue: goOn, Passed: never})
		clusters := clusterv1connect.NewClusterServiceClient(http.DefaultClient, at)
		if err := l.Write(t.Context(), Entry{}); err != nil {
			t.Fatal(err)
		}
		l.file.f.Close() // Run is idle, because the write above has ended
		_, err := clusters.PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "a"}))
		switch {
		case goOn && (err != nil || c.calls != 1):
			t.Errorf("continue: %v, made %d times", err, c.calls)
		case !goOn && (connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "audit") || c.calls != 0):
			t.Errorf("deny-changes: %v, made %d times", err, c.calls)
		}
		if _, err := clusters.GetCluster(t.Context(), connect.NewRequest(&clusterv1.GetClusterRequest{})); err != nil {
			t.Errorf("a read: %v", err)
		}
		if _, err := clusters.PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "b"})); err != nil {
			t.Errorf("once it can be written again: %v", err)
		}
		ended()
	}
}

// A call that another node makes for a client names both the client and the
// node.
func TestForwardedCallNamesClientAndNode(t *testing.T) {
	_, _, at, ended := serve(t, CallOptions{Passed: func(context.Context) (string, *principal.Principal) {
		return "n2", &principal.Principal{Kind: principal.Token, Name: "root"}
	}})
	clusters := clusterv1connect.NewClusterServiceClient(http.DefaultClient, at)
	if _, err := clusters.PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "a"})); err != nil {
		t.Fatal(err)
	}
	got := ended()
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	for _, e := range got {
		if e.Via != "node:n2" || e.Principal != (Principal{Kind: "token", Name: "root"}) {
			t.Errorf("%+v", e)
		}
	}
}

// A rejected credential gets a line, which never contains the credential.
func TestRejectedCredentialIsLogged(t *testing.T) {
	path := logPath(t)
	l, stop := started(t, Options{Path: path, Node: "n1"})
	calls := NewCalls(l, CallOptions{Services: []protoreflect.ServiceDescriptor{clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0)}, Passed: never})
	r := httptest.NewRequest(http.MethodPost, clusterv1connect.ClusterServiceDrainNodeProcedure, nil)
	r.RemoteAddr = "127.9.9.9:4000"
	r.Header.Set("Authorization", "Bearer hst_secret")
	calls.RecordRefused(r, "unknown")
	stop()
	text := read(t, path)
	if !strings.Contains(text, `"reason":"unknown"`) || !strings.Contains(text, `"verb":"admin"`) || !strings.Contains(text, "127.9.9.9:4000") || strings.Contains(text, "secret") {
		t.Error(text)
	}
}
