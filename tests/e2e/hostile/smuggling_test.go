package hostile

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

var statusLine = regexp.MustCompile(`HTTP/1\.1 (\d+) `)

// TestRequestsAreNotSmuggled checks that the rest of a body whose request was
// answered early is never parsed as another request. The connection ends after
// that answer, so that a proxy that reuses connections cannot be made to send a
// request that it rejects, or to give one caller the answer of another caller.
func TestRequestsAreNotSmuggled(t *testing.T) {
	testkit.Long(t, "long")
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	const inner = `{"entityType":"counter","entityId":"smuggled","command":"add","json":{"amount":7}}`
	smuggled := fmt.Sprintf("POST %sSend HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", entityPath, len(inner), inner)
	// A smuggled request begins at each offset at which the node may stop reading
	// the body: at the first byte, and one byte beyond the limit.
	padded := strings.Replace(smuggled, "Host: 127.0.0.1", "Host: 127.0.0.1"+strings.Repeat(" ", 512-len(smuggled)), 1)
	body := strings.Repeat(padded, 1<<20/512) + " " + strings.Repeat(padded, 1<<20/512)

	const unary, stream = "application/json", "application/connect+json"
	for _, c := range []struct{ name, path, headers, kind string }{
		{"unknown encoding", entityPath + "SendCommand", "Content-Encoding: gzip\r\n", unary},
		{"bad timeout", entityPath + "SendCommand", "Connect-Timeout-Ms: never\r\n", unary},
		{"over the limit", entityPath + "SendCommand", "", unary},
		{"a stream that HTTP/1.1 cannot have", entityPath + "SendCommandStream", "", stream},
		{"gRPC of an unknown encoding", entityPath + "SendCommand", "Grpc-Encoding: br\r\n", "application/grpc-web"},
		{"an upload", "/hostd.module.v1.ModuleService/UploadModule", "Content-Encoding: gzip\r\n", unary},
		{"an upload in pieces", "/hostd.module.v1.ModuleService/UploadModuleStream", "Connect-Content-Encoding: br\r\n", stream},
		{"a call between nodes", "/hostd.peer.v1.PeerService/Probe", "Content-Encoding: gzip\r\n", unary},
		{"a hop", "/hostd.hop/hostd.entity.v1.EntityService/SendCommand", "Content-Encoding: gzip\r\n", unary},
		{"a wrong kind of body", entityPath + "SendCommand", "", "text/plain"},
		{"no such path", "/nothing", "", unary},
	} {
		for _, framing := range []string{"length", "chunks"} {
			t.Run(c.name+" by "+framing, func(t *testing.T) {
				conn := dial(t, node)
				head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\n%s", c.path, c.kind, c.headers)
				if framing == "length" {
					head += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
				} else {
					head += fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
				}
				go io.WriteString(conn, head) // the node may close the connection first
				answer, err := io.ReadAll(conn)
				lines := statusLine.FindAllString(string(answer), -1)
				if len(lines) != 1 {
					t.Errorf("%d answers: %q, %v", len(lines), lines, err)
				}
			})
		}
	}
	beside.adds()
	ctx := t.Context()
	if r, err := beside.client.Query(ctx, client.Query{EntityType: "counter", EntityID: "smuggled", Name: "total"}); err != nil || r.Sequence != 0 {
		t.Errorf("a smuggled command took effect: %+v, %v", r, err)
	}
}
