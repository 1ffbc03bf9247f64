package edge_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/edge"
)

// Fields that are not in the request keep their values. A request that changes
// nothing, or sets a useless value, is rejected.
func TestSetPolicy(t *testing.T) {
	s := serve(t, edge.Options{Admin: true})
	_, body := s.post(t, clusterPath+"SetPolicy", `{"replication":5}`)
	wantJSON(t, body, `{"policy":{"replication":5,"minMembers":1,"rebalance":true,"deadAfter":"300s","stored":true}}`)
	_, body = s.post(t, clusterPath+"SetPolicy", `{"rebalance":false,"deadAfter":"60s"}`)
	wantJSON(t, body, `{"policy":{"replication":5,"minMembers":1,"deadAfter":"60s","stored":true}}`)
	for _, request := range []string{`{}`, `{"deadAfter":"0s"}`} {
		_, body = s.post(t, clusterPath+"SetPolicy", request)
		wantCode(t, body, connect.CodeInvalidArgument)
	}
}
