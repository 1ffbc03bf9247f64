package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
)

// answerTime is the deadline of a request to an isolated node. The node must
// report much earlier that it cannot answer.
const answerTime = 5 * time.Second

// askAll sends concurrent requests for entities of every shard to one node,
// like a caller that knows no other node. It returns the codes, and the
// duration of the slowest request.
func (w *world) askAll(place int) (codes []connect.Code, slowest time.Duration) {
	w.t.Helper()
	c := entityv1connect.NewEntityServiceClient(http.DefaultClient, w.Node(place).API())
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 4 * shards { // enough to reach every shard
		all.Go(func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), answerTime)
			defer cancel()
			began := time.Now()
			_, err := c.QueryEntity(ctx, connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "counter", EntityId: fmt.Sprintf("cut-%d", i), Query: "total"}))
			took := time.Since(began)
			code := connect.Code(0)
			if err != nil {
				code = connect.CodeOf(err)
			}
			mu.Lock()
			defer mu.Unlock()
			codes, slowest = append(codes, code), max(slowest, took)
		})
	}
	all.Wait()
	return codes, slowest
}

// serves waits until a node answers requests for every shard.
func (w *world) serves(place int) {
	w.t.Helper()
	w.Await(w.Node(place).ID()+" answers about every shard", func() bool {
		codes, _ := w.askAll(place)
		return !slices.ContainsFunc(codes, func(c connect.Code) bool { return c != 0 })
	})
}
