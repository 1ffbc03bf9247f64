package edge_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
)

// TestFormerPathsAreServed: a client of the previous release reaches a procedure by
// its former path.
func TestFormerPathsAreServed(t *testing.T) {
	s := serve(t, edge.Options{})
	for _, path := range []string{"Send", "SendCommand"} {
		status, body := s.post(t, entityPath+path, `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":3}}`)
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestFormerAgesAreRead: a request of the previous release has the age of its first
// attempt as a number of milliseconds in a former field. A node that ignored it
// would run the retry as a new command.
func TestFormerAgesAreRead(t *testing.T) {
	s := serve(t, edge.Options{})
	about := func(more ...string) (out []byte) {
		for i, text := range append([]string{"counter", "a"}, more...) {
			out = protowire.AppendString(protowire.AppendTag(out, protowire.Number(i+1), protowire.BytesType), text)
		}
		return out
	}
	for _, tt := range []struct {
		method  string
		request []byte
		age     protowire.Number
	}{
		{"Send", about("add"), 8}, {"SkipTimer", about("ring"), 5}, {"Delete", about(), 4},
	} {
		request := protowire.AppendVarint(protowire.AppendTag(tt.request, tt.age, protowire.VarintType), 60_000)
		status, body := s.post(t, entityPath+tt.method, string(request), "Content-Type", "application/proto")
		if status != http.StatusBadRequest || !strings.Contains(body, "needs the command_id of the first attempt") {
			t.Errorf("%s without a command id: %d %s", tt.method, status, body)
		}
	}
}

type seenPath struct{ path string }

// RoundTrip implements http.RoundTripper.
func (s *seenPath) RoundTrip(r *http.Request) (*http.Response, error) {
	s.path = r.URL.Path
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

// TestNodesCallEachOtherByFormerPaths: a node calls other nodes by the
// former path of a procedure, because a node of the previous release knows
// no other path.
func TestNodesCallEachOtherByFormerPaths(t *testing.T) {
	prefix := strings.TrimSuffix(leaderproxy.Path, "/")
	for path, want := range map[string]string{
		prefix + "/hostd.entity.v1.EntityService/QueryEntity":     prefix + "/hostd.entity.v1.EntityService/Query",
		prefix + "/hostd.module.v1.ModuleService/VerifyModule":    prefix + "/hostd.module.v1.ModuleService/Verify",
		prefix + "/hostd.entity.v1.EntityService/GetState":        prefix + "/hostd.entity.v1.EntityService/GetState",
		prefix + "/hostd.workflow.v1.WorkflowService/GetWorkflow": prefix + "/hostd.workflow.v1.WorkflowService/GetWorkflow",
	} {
		seen := new(seenPath)
		res, err := leaderproxy.Telling(&http.Client{Transport: seen}).Get("http://n2" + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if seen.path != want {
			t.Errorf("%s was requested as %s, want %s", path, seen.path, want)
		}
	}
}
