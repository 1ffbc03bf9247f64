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

// answerTime is the deadline of a request to a node that is cut off: it must
// say by itself that it cannot answer, well before that.
const answerTime = 5 * time.Second

// askAll asks one node about an entity of every shard, all at once, as a
// caller who knows no other node. It returns what the requests were answered
// and how long the slowest took.
func (w *world) askAll(place int) (codes []connect.Code, slowest time.Duration) {
	w.t.Helper()
	c := entityv1connect.NewEntityServiceClient(http.DefaultClient, w.Node(place).API())
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 4 * shards { // whatever shards they are in
		all.Go(func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), answerTime)
			defer cancel()
			began := time.Now()
			_, err := c.Query(ctx, connect.NewRequest(&entityv1.QueryRequest{EntityType: "counter", EntityId: fmt.Sprintf("cut-%d", i), Query: "total"}))
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

// serves waits until a node answers about every shard.
func (w *world) serves(place int) {
	w.t.Helper()
	w.Await(w.Node(place).ID()+" answers about every shard", func() bool {
		codes, _ := w.askAll(place)
		return !slices.ContainsFunc(codes, func(c connect.Code) bool { return c != 0 })
	})
}
