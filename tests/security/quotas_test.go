package security

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// limited is a node with callers that have quotas.
type limited struct {
	*testkit.Node
	t     *testing.T
	token map[string]string
	root  *client.Client
}

// limit starts a node with a caller for each quota.
func limit(t *testing.T, quotas map[string]*clusterv1.RoleQuotas) *limited {
	t.Helper()
	names := []string{"root"}
	for name := range quotas {
		names = append(names, name)
	}
	l := &limited{t: t}
	var file string
	l.token, file = tokens(t, names...)
	l.Node = testkit.NewNode(t, testkit.NodeOptions{Token: l.token["root"], Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full"}})
	l.Node.Start()
	l.Push("counter")
	l.root = l.Client(client.Options{Token: l.token["root"], Timeout: testkit.Patience})
	bind(t, l.root, "token:root", "admin")
	for name, q := range quotas {
		if _, err := client.PutRoleWithQuotas(t.Context(), l.root, name, q); err != nil {
			t.Fatal(err)
		}
		bind(t, l.root, "token:"+name, name, "invoker", "viewer", "deployer")
	}
	return l
}

// calls returns an HTTP client that connects from an IP address.
func (l *limited) calls(ip string) *http.Client {
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: from.DialContext, Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	l.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// over reports whether an error rejects a call because of the quota. It fails
// the test unless the error says when to retry.
func over(t *testing.T, err error, quota string) bool {
	t.Helper()
	refused, ok := errors.AsType[*connect.Error](err)
	if !ok || refused.Code() != connect.CodeResourceExhausted || !strings.Contains(refused.Message(), "exceeded its quota "+quota+"=") {
		return false
	}
	for _, d := range refused.Details() {
		if v, err := d.Value(); err == nil {
			if info, ok := v.(*errdetails.RetryInfo); ok && info.GetRetryDelay().AsDuration() > 0 {
				return true
			}
		}
	}
	t.Errorf("%v does not say when to come again", err)
	return true
}

func (l *limited) refusals(quota, role string) float64 {
	return l.Metrics()[fmt.Sprintf(`hostd_quota_rejections_total{quota=%q,role=%q}`, quota, role)]
}

// TestStreamQuotaPerCaller checks that a caller may have as many open streams
// as its role permits, and may open another stream when one has ended. Other
// callers have separate quotas.
func TestStreamQuotaPerCaller(t *testing.T) {
	l := limit(t, map[string]*clusterv1.RoleQuotas{"narrow": {Streams: 2}, "other": {Streams: 1}})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	calls := l.calls("127.0.0.1")
	var last *connect.BidiStreamForClient[entityv1.SendCommandStreamRequest, entityv1.SendCommandStreamResponse]
	open := func(who string) error {
		service := entityv1connect.NewEntityServiceClient(calls, l.API(), connect.WithInterceptors(bearer(l.token[who])), connect.WithGRPC())
		stream := service.SendCommandStream(ctx)
		last = stream
		if err := stream.Send(&entityv1.SendCommandStreamRequest{Requests: []*entityv1.SendCommandStreamRequest_Item{{
			CorrelationId: 1, Request: &entityv1.SendCommandRequest{EntityType: "counter", EntityId: who, Command: "add", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}},
		}}}); err != nil {
			_, err = stream.Receive()
			return err
		}
		_, err := stream.Receive()
		return err
	}
	if err := open("narrow"); err != nil {
		t.Fatalf("the first stream of two: %v", err)
	}
	first := last
	if err := open("narrow"); err != nil {
		t.Fatalf("the second stream of two: %v", err)
	}
	if err := open("narrow"); !over(t, err, "streams") {
		t.Errorf("the third stream of two: %v", err)
	}
	if err := open("other"); err != nil {
		t.Errorf("another caller's: %v", err)
	}
	if got := l.refusals("streams", "narrow"); got != 1 {
		t.Errorf("%v refusals are counted", got)
	}
	if err := first.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	l.Until("one has ended, and another one begins", func() error { return open("narrow") })
	// A change of the role applies to streams opened later.
	if _, err := client.PutRoleWithQuotas(ctx, l.root, "narrow", &clusterv1.RoleQuotas{Streams: 3}); err != nil {
		t.Fatal(err)
	}
	if err := open("narrow"); err != nil {
		t.Errorf("the third of three: %v", err)
	}
	if err := open("narrow"); !over(t, err, "streams") {
		t.Errorf("the fourth of three: %v", err)
	}
}

// TestUploadQuotaPerCaller checks that a caller may make one upload at a time
// unless its role permits more, regardless of the addresses that it uses. If
// two uploads are permitted and two are in progress, a third is rejected.
func TestUploadQuotaPerCaller(t *testing.T) {
	l := limit(t, map[string]*clusterv1.RoleQuotas{"standard": {Streams: 64}, "two": {Uploads: 2}})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	modules := func(who, ip string) modulev1connect.ModuleServiceClient {
		return modulev1connect.NewModuleServiceClient(l.calls(ip), l.API(), connect.WithInterceptors(bearer(l.token[who]), authorization(l.token[who])), connect.WithGRPC())
	}
	made := int32(1000)
	upload := func(who, ip string) error {
		made++
		wasm := guest.Module{Bad: "any", Handle: guest.Count(made)}.Build()
		_, err := modules(who, ip).UploadModule(ctx, connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: wasm}))
		return err
	}
	// begin starts an upload that continues until end is called, and waits
	// until one more upload is rejected. If the additional upload started
	// first, it was accepted, and the first upload may have been rejected.
	// begin then starts another upload.
	begin := func(who, ip, more string) (end func()) {
		var begun []*connect.ClientStreamForClient[modulev1.UploadModuleStreamRequest, modulev1.UploadModuleStreamResponse]
		l.Until("one more upload is refused", func() error {
			stream := modules(who, ip).UploadModuleStream(ctx)
			begun = append(begun, stream)
			if err := stream.Send(&modulev1.UploadModuleStreamRequest{Wasm: []byte{0}}); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if err := upload(who, more); !over(t, err, "uploads") {
				return fmt.Errorf("it is not: %v", err)
			}
			return nil
		})
		return func() {
			taken := 0
			for _, stream := range begun {
				if _, err := stream.CloseAndReceive(); connect.CodeOf(err) == connect.CodeInvalidArgument {
					taken++
				} else if !over(t, err, "uploads") {
					t.Errorf("an upload of nonsense: %v", err)
				}
			}
			if taken != 1 {
				t.Errorf("%d of %d uploads of nonsense were taken", taken, len(begun))
			}
		}
	}
	if err := upload("standard", "127.0.0.2"); err != nil {
		t.Fatalf("the only upload: %v", err)
	}
	begin("standard", "127.0.0.2", "127.0.0.3")()
	l.Until("the one has ended", func() error { return upload("standard", "127.0.0.3") })

	first := modules("two", "127.0.0.2").UploadModuleStream(ctx)
	if err := first.Send(&modulev1.UploadModuleStreamRequest{Wasm: []byte{0}}); err != nil {
		t.Fatal(err)
	}
	if err := upload("two", "127.0.0.3"); err != nil {
		t.Errorf("the second upload of two: %v", err)
	}
	// Without the quota, a third upload from a different address would wait for
	// its turn.
	begin("two", "127.0.0.3", "127.0.0.4")()
	if _, err := first.CloseAndReceive(); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("the first upload of two: %v", err)
	}
}

// authorization adds a token to unary calls.
func authorization(token string) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("Authorization", "Bearer "+token)
			return next(ctx, req)
		}
	})
}

// TestRateQuotaPerCaller checks that calls that exceed a caller's rate per
// second are rejected, each command of a stream individually, and that rejected
// calls write nothing. Compile time is limited per minute.
func TestRateQuotaPerCaller(t *testing.T) {
	l := limit(t, map[string]*clusterv1.RoleQuotas{
		"commands-per-second": {CommandsPerSecond: 1}, "fuel-per-second": {FuelPerSecond: 1}, "bytes-per-second": {BytesPerSecond: 1},
		"compile-seconds-per-minute": {CompileSecondsPerMinute: 1, Uploads: 4},
	})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for _, quota := range []string{"commands-per-second", "fuel-per-second", "bytes-per-second"} {
		service := entityv1connect.NewEntityServiceClient(l.calls("127.0.0.1"), l.API(), connect.WithInterceptors(bearer(l.token[quota]), authorization(l.token[quota])), connect.WithGRPC())
		add := &entityv1.SendCommandRequest{EntityType: "counter", EntityId: quota, Command: "add", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}}
		taken := uint64(0)
		send := func() error {
			_, err := service.SendCommand(ctx, connect.NewRequest(add))
			if err == nil {
				taken++
			} else if !over(t, err, quota) {
				t.Errorf("%s: %v", quota, err)
			}
			return err
		}
		if err := send(); err != nil {
			t.Fatalf("%s: the first command: %v", quota, err)
		}
		l.Until("a command is over "+quota, func() error {
			if send() == nil {
				return errors.New("it is carried out")
			}
			return nil
		})
		stream := service.SendCommandStream(ctx)
		var items []*entityv1.SendCommandStreamRequest_Item
		for i := range uint64(50) {
			items = append(items, &entityv1.SendCommandStreamRequest_Item{CorrelationId: i, Request: add})
		}
		refused := 0
		if err := stream.Send(&entityv1.SendCommandStreamRequest{Requests: items}); err != nil {
			t.Fatal(err)
		}
		for answered := 0; answered < len(items); {
			answer, err := stream.Receive()
			if err != nil {
				t.Fatalf("%s: %v", quota, err)
			}
			for _, item := range answer.GetResponses() {
				answered++
				switch e := item.GetError(); {
				case e == nil:
					taken++
				case e.GetCode() == connect.CodeResourceExhausted.String() && strings.Contains(e.GetMessage(), "exceeded its quota "+quota+"=") && len(e.GetDetails()) == 1:
					refused++
				default:
					t.Errorf("%s: a command of a stream: %v", quota, e)
				}
			}
		}
		if refused == 0 {
			t.Errorf("%s: 50 commands of a stream are carried out at once", quota)
		}
		state, err := l.root.Entity(ctx, "counter", quota)
		if err != nil || state.GetSequence() != taken {
			t.Errorf("%s: %d commands were carried out, the entity is at %v, %v", quota, taken, state, err)
		}
		if l.refusals(quota, quota) < float64(refused+1) {
			t.Errorf("%s: %v refusals are counted", quota, l.refusals(quota, quota))
		}
		if _, err := l.root.Send(ctx, client.Command{EntityType: "counter", EntityID: "root", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Errorf("%s: who has no quota: %v", quota, err)
		}
	}
	quota, made := "compile-seconds-per-minute", int32(5000)
	modules := modulev1connect.NewModuleServiceClient(l.calls("127.0.0.1"), l.API(), connect.WithInterceptors(authorization(l.token[quota])))
	l.Until("what compilers take is over the quota", func() error {
		made++
		wasm := guest.Module{Bad: "slow", Handle: slices.Concat(slices.Repeat([]byte{0x03, 0x40}, 900), slices.Repeat([]byte{0x0b}, 900), guest.Count(made))}.Build()
		_, err := modules.UploadModule(ctx, connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: wasm}))
		if !over(t, err, quota) {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
}
