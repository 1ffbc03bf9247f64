// Package api tests a running node from outside, over plain HTTP and every
// protocol, with valid and invalid input. It checks codes and messages, and
// that rejected calls wrote nothing. It contains only tests.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// surface is a node with the clients of its API.
type surface struct {
	node *testkit.Node
	http *http.Client
}

func start(t *testing.T, opts testkit.NodeOptions, examples ...string) *surface {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	s := &surface{node: testkit.StartNode(t, opts), http: &http.Client{Transport: transport}}
	s.node.Push(examples...)
	return s
}

// protocols are the protocols in which a procedure can be called.
var protocols = []struct {
	name string
	opts []connect.ClientOption
}{
	{"connect", nil},
	{"connect json", []connect.ClientOption{connect.WithProtoJSON()}},
	{"connect get", []connect.ClientOption{connect.WithHTTPGet()}},
	{"grpc", []connect.ClientOption{connect.WithGRPC()}},
	{"grpc-web", []connect.ClientOption{connect.WithGRPCWeb()}},
}

func (s *surface) entities(opts ...connect.ClientOption) entityv1connect.EntityServiceClient {
	return entityv1connect.NewEntityServiceClient(s.http, s.node.API(), opts...)
}

func (s *surface) modules() modulev1connect.ModuleServiceClient {
	return modulev1connect.NewModuleServiceClient(s.http, s.node.API())
}

func (s *surface) cluster() clusterv1connect.ClusterServiceClient {
	return clusterv1connect.NewClusterServiceClient(s.http, s.node.API())
}

// call makes a unary call. The type of the message selects the procedure.
func (s *surface) call(ctx context.Context, message proto.Message, opts ...connect.ClientOption) (proto.Message, error) {
	e, m, c := s.entities(opts...), s.modules(), s.cluster()
	switch r := message.(type) {
	case *entityv1.SendCommandRequest:
		return answer(e.SendCommand(ctx, connect.NewRequest(r)))
	case *entityv1.QueryEntityRequest:
		return answer(e.QueryEntity(ctx, connect.NewRequest(r)))
	case *entityv1.GetEntityRequest:
		return answer(e.GetEntity(ctx, connect.NewRequest(r)))
	case *entityv1.GetStateRequest:
		return answer(e.GetState(ctx, connect.NewRequest(r)))
	case *entityv1.ListEntitiesRequest:
		return answer(e.ListEntities(ctx, connect.NewRequest(r)))
	case *modulev1.UploadModuleRequest:
		return answer(m.UploadModule(ctx, connect.NewRequest(r)))
	case *modulev1.GetModuleRequest:
		return answer(m.GetModule(ctx, connect.NewRequest(r)))
	case *modulev1.DownloadModuleRequest:
		in, err := m.DownloadModule(ctx, connect.NewRequest(r))
		if err == nil {
			for in.Receive() {
			}
			err = in.Err()
		}
		return nil, err
	case *modulev1.ActivateModuleRequest:
		return answer(m.ActivateModule(ctx, connect.NewRequest(r)))
	case *modulev1.RollbackModuleRequest:
		return answer(m.RollbackModule(ctx, connect.NewRequest(r)))
	case *clusterv1.DrainNodeRequest:
		return answer(c.DrainNode(ctx, connect.NewRequest(r)))
	case *clusterv1.DownNodeRequest:
		return answer(c.DownNode(ctx, connect.NewRequest(r)))
	case *clusterv1.RemoveNodeRequest:
		return answer(c.RemoveNode(ctx, connect.NewRequest(r)))
	case *clusterv1.ResumeNodeRequest:
		return answer(c.ResumeNode(ctx, connect.NewRequest(r)))
	case *clusterv1.MoveShardRequest:
		return answer(c.MoveShard(ctx, connect.NewRequest(r)))
	case *clusterv1.RebalanceShardsRequest:
		return answer(c.RebalanceShards(ctx, connect.NewRequest(r)))
	case *clusterv1.PutSettingRequest:
		return answer(c.PutSetting(ctx, connect.NewRequest(r)))
	}
	return nil, errors.New("the test has no such call")
}

func answer[T any, P interface {
	*T
	proto.Message
}](res *connect.Response[T], err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return P(res.Msg), nil
}

// post makes a call like curl, with HTTP/1.1 and a body.
func (s *surface) post(t *testing.T, procedure, contentType, body string) (status int, answer string) {
	t.Helper()
	res, err := http.Post(s.node.API()+procedure, contentType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// failure is an error in plain HTTP.
type failure struct {
	Code    string
	Message string
	Details []struct {
		Type  string
		Debug json.RawMessage
	}
}

func parseFailure(t *testing.T, text string) failure {
	t.Helper()
	var f failure
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Errorf("the answer %q is no error in JSON: %v", text, err)
	}
	return f
}

// written returns everything that is stored for some entity types: each entity
// and its events, as text.
func (s *surface) written(t *testing.T, types ...string) []string {
	t.Helper()
	var all []string
	for _, entityType := range types {
		list, err := s.entities().ListEntities(t.Context(), connect.NewRequest(&entityv1.ListEntitiesRequest{EntityType: entityType, PageSize: 1000}))
		if err != nil {
			t.Fatal(err)
		}
		if list.Msg.GetNextPageToken() != "" {
			t.Fatal("the test has too many entities for one page")
		}
		for _, e := range list.Msg.GetEntities() {
			stream, err := s.entities().ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: entityType, EntityId: e.GetEntityId(), AsData: true}))
			if err != nil {
				t.Fatal(err)
			}
			for stream.Receive() {
				all = append(all, entityType+"/"+e.GetEntityId()+" "+stream.Msg().String())
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			stream.Close()
		}
	}
	return all
}

// unchanged runs a test, and checks that it has written nothing for the types.
func (s *surface) unchanged(t *testing.T, types []string, run func()) {
	t.Helper()
	before := s.written(t, types...)
	if len(before) == 0 {
		t.Fatal("nothing is written beforehand: the comparison would see nothing")
	}
	run()
	if after := s.written(t, types...); !slices.Equal(before, after) {
		t.Errorf("what is stored has changed from\n%s\nto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// send runs a command that must succeed.
func (s *surface) send(t *testing.T, r *entityv1.SendCommandRequest) *entityv1.SendCommandResponse {
	t.Helper()
	res, err := s.call(t.Context(), r)
	if err != nil {
		t.Fatalf("%v: %v\n%s", r, err, s.node.Log())
	}
	return res.(*entityv1.SendCommandResponse)
}

func command(entityType, id, name, payload string) *entityv1.SendCommandRequest {
	r := &entityv1.SendCommandRequest{EntityType: entityType, EntityId: id, Command: name}
	if payload != "" {
		r.Payload = &entityv1.SendCommandRequest_Data{Data: []byte(payload)}
	}
	return r
}
