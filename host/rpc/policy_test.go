package rpc_test

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/rpc"
)

// What is not in the request stays as it is; what asks for nothing, or for
// something that cannot be meant, is refused.
func TestSetPolicy(t *testing.T) {
	s := serve(t, rpc.Options{Admin: true})
	_, body := s.post(t, clusterPath+"SetPolicy", `{"replication":5}`)
	wantJSON(t, body, `{"policy":{"replication":5,"minMembers":1,"rebalance":true,"deadAfterMillis":"300000","stored":true}}`)
	_, body = s.post(t, clusterPath+"SetPolicy", `{"rebalance":false,"deadAfterMillis":"60000"}`)
	wantJSON(t, body, `{"policy":{"replication":5,"minMembers":1,"deadAfterMillis":"60000","stored":true}}`)
	for _, request := range []string{`{}`, `{"deadAfterMillis":"0"}`} {
		_, body = s.post(t, clusterPath+"SetPolicy", request)
		wantCode(t, body, connect.CodeInvalidArgument)
	}
}
