package edge_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/sharding"
)

func counter(id string) sharding.EntityID { return sharding.EntityID{Type: "counter", ID: id} }

// TestMessageLimit: a message at the limit is accepted, and one byte more is
// rejected as the caller's fault, in every protocol and encoding.
func TestMessageLimit(t *testing.T) {
	const limit = 64 << 10
	s := serve(t, edge.Options{MaxMessageBytes: limit})
	// Spaces after the JSON pad it to any length.
	jsonBody := func(n int) string {
		body := `{"entityType":"counter","entityId":"a","command":"echo"}`
		return body + strings.Repeat(" ", n-len(body))
	}
	for _, n := range []int{limit - 1, limit, limit + 1} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(jsonBody(n))
			if chunked {
				body = io.MultiReader(body) // hides the length
			}
			r, err := http.NewRequest(http.MethodPost, s.url+entityPath+"SendCommand", body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			status, answer := do(t, r)
			if n <= limit && status != 200 {
				t.Errorf("%d bytes, chunked %v: %d %s", n, chunked, status, answer)
			}
			if n > limit {
				wantCode(t, answer, connect.CodeInvalidArgument)
			}
		}
		request := requestOfSize(t, n)
		for name, opts := range protocols() {
			if strings.HasSuffix(name, " json") {
				continue // the text is longer than the message
			}
			_, err := s.entities(opts...).SendCommand(t.Context(), connect.NewRequest(request))
			if n <= limit && err != nil {
				t.Errorf("%s, %d bytes: %v", name, n, err)
			}
			if n > limit && connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s, %d bytes: %v", name, n, err)
			}
		}
	}
}

// requestOfSize makes a command whose encoding has n bytes.
func requestOfSize(t *testing.T, n int) *entityv1.SendCommandRequest {
	t.Helper()
	data := make([]byte, n)
	for {
		r := &entityv1.SendCommandRequest{EntityType: "blob", EntityId: "b", Command: "echo", Payload: &entityv1.SendCommandRequest_Data{Data: data}}
		over := proto.Size(r) - n
		if over == 0 {
			return r
		}
		data = data[:len(data)-over]
	}
}

func protocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"connect":       nil,
		"connect json":  {connect.WithProtoJSON()},
		"grpc":          {connect.WithGRPC()},
		"grpc json":     {connect.WithGRPC(), connect.WithProtoJSON()},
		"grpc-web":      {connect.WithGRPCWeb()},
		"grpc-web json": {connect.WithGRPCWeb(), connect.WithProtoJSON()},
	}
}

// TestNameLimits: names at their limits are accepted, and one byte more is
// rejected.
func TestNameLimits(t *testing.T) {
	s := serve(t, edge.Options{})
	for _, c := range []struct {
		name  string
		limit int
		set   func(*entityv1.SendCommandRequest, string)
		code  connect.Code // expected code at and below the limit
	}{
		{"entity type", 64, func(r *entityv1.SendCommandRequest, v string) { r.EntityType = v }, connect.CodeNotFound},
		{"entity id", 256, func(r *entityv1.SendCommandRequest, v string) { r.EntityId = v }, 0},
		{"command", 255, func(r *entityv1.SendCommandRequest, v string) { r.Command = v }, connect.CodeNotFound},
		{"command id", 128, func(r *entityv1.SendCommandRequest, v string) { r.CommandId = v }, 0},
	} {
		for _, n := range []int{c.limit - 1, c.limit, c.limit + 1} {
			r := &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "add", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}}
			c.set(r, strings.Repeat("x", n))
			want := c.code
			if n > c.limit {
				want = connect.CodeInvalidArgument
			}
			_, err := s.entities().SendCommand(t.Context(), connect.NewRequest(r))
			if got := codeOrZero(err); got != want {
				t.Errorf("%s of %d bytes: %v, want %v", c.name, n, err, want)
			}
			stream := s.sendOne(t, r)
			if stream.GetError().GetCode() != codeName(want) {
				t.Errorf("%s of %d bytes in a stream: %v, want %v", c.name, n, stream, want)
			}
		}
	}
}

func codeOrZero(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

func codeName(c connect.Code) string {
	if c == 0 {
		return ""
	}
	return c.String()
}

// TestCompressedInputIsRejected: a small body that would decompress to a large
// one costs nothing, because nothing is decompressed.
func TestCompressedInputIsRejected(t *testing.T) {
	s := serve(t, edge.Options{})
	var bomb bytes.Buffer
	z, _ := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	for range 16 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	status, body := s.post(t, entityPath+"SendCommand", bomb.String(), "Content-Encoding", "gzip")
	if status == 200 {
		t.Errorf("status %d", status)
	}
	wantCode(t, body, connect.CodeUnimplemented)
	_, err := s.entities(connect.WithSendGzip()).SendCommand(t.Context(), connect.NewRequest(&entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "echo"}))
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("a compressed call: %v", err)
	}
}

func TestHeaderLimit(t *testing.T) {
	s := serve(t, edge.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Padding: %s\r\n\r\n", strings.Repeat("x", 20<<10))
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(status, "431") {
		t.Errorf("status %q, %v", status, err)
	}
}

// TestModuleLimit: modules up to their limit are accepted, in one message or in
// several; larger ones are rejected.
func TestModuleLimit(t *testing.T) {
	const limit = 32 << 20
	s := serve(t, edge.Options{})
	c := modulev1connect.NewModuleServiceClient(s.h2, s.url)
	wasm := append([]byte("\x00asm"), make([]byte, limit-3)...)
	for _, n := range []int{limit - 1, limit, limit + 1} {
		_, err := c.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: wasm[:n]}))
		if (err == nil) != (n <= limit) || err != nil && connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%d bytes: %v", n, err)
		}
		stream := c.UploadModuleStream(t.Context())
		for rest := wasm[:n]; len(rest) > 0; {
			piece := rest[:min(len(rest), 1<<19)]
			rest = rest[len(piece):]
			if stream.Send(&modulev1.UploadModuleStreamRequest{Wasm: piece}) != nil {
				break // the error comes with the response
			}
		}
		_, err = stream.CloseAndReceive()
		if (err == nil) != (n <= limit) || err != nil && connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%d bytes in pieces: %v", n, err)
		}
	}
}

// TestUploadsAtATime: an upload beyond the limit waits until another upload
// ends.
func TestUploadsAtATime(t *testing.T) {
	s := serve(t, edge.Options{MaxUploads: 1})
	c := modulev1connect.NewModuleServiceClient(s.h2, s.url)
	open := c.UploadModuleStream(t.Context())
	if err := open.Send(&modulev1.UploadModuleStreamRequest{Wasm: []byte("\x00asm")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second upload to wait in vain", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.UploadModule(ctx, connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm1")}))
		return err != nil
	})
	second := make(chan error, 1)
	go func() {
		_, err := c.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm2")}))
		second <- err
	}()
	if _, err := open.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Errorf("after the first ended: %v", err)
	}
}

// TestDeadlines: the server limits the wait of a call without a deadline and
// respects a shorter one; the command itself continues.
func TestDeadlines(t *testing.T) {
	s := serve(t, edge.Options{DefaultDeadline: 50 * time.Millisecond, MaxDeadline: 200 * time.Millisecond})
	body := `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1},"commandId":"%s"}`
	for i, header := range [][]string{nil, {"Connect-Timeout-Ms", "20"}, {"Connect-Timeout-Ms", "3600000"}} {
		s.world.Pause()
		status, answer := s.post(t, entityPath+"SendCommand", fmt.Sprintf(body, fmt.Sprint("c", i)), header...)
		if status != http.StatusGatewayTimeout {
			t.Errorf("%v: status %d: %s", header, status, answer)
		}
		wantCode(t, answer, connect.CodeDeadlineExceeded)
		s.world.Resume()
		eventually(t, "the queue to empty", func() bool { now, _, _ := s.world.Queued(); return now == 0 })
	}
	status, answer := s.post(t, entityPath+"SendCommand", fmt.Sprintf(body, "c9"), "Connect-Timeout-Ms", "-1")
	if status != 400 {
		t.Errorf("status %d: %s", status, answer)
	}
}

// TestCancelledCall: a call ends when its caller cancels it.
func TestCancelledCall(t *testing.T) {
	s := serve(t, edge.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	s.world.Pause()
	go func() {
		eventually(t, "the call to arrive", func() bool { now, _, _ := s.world.Queued(); return now == 1 })
		cancel()
	}()
	_, err := s.entities().SendCommand(ctx, connect.NewRequest(&entityv1.SendCommandRequest{EntityType: "counter", EntityId: "a", Command: "add"}))
	if connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("a call that its caller cancelled: %v", err)
	}
	s.world.Resume()
}
