package fitsum

import (
	"context"
	"fmt"
	"sync"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/sharding"
)

// Each adds up what look tells of the shards from 1 to last, of which it has
// most at a time. Those of which look fails are unread, and told to failed.
func Each(ctx context.Context, last uint32, most int, look func(context.Context, sharding.ShardID) (*modulev1.FitResponse, error), failed func(sharding.ShardID, error)) *modulev1.FitResponse {
	var mu sync.Mutex
	var all sync.WaitGroup
	sum := New()
	places := make(chan struct{}, most)
	for shard := sharding.ShardID(1); uint32(shard) <= last; shard++ {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			one, err := look(ctx, shard)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed(shard, err)
				sum.Unread(1)
				return
			}
			sum.Add(one)
		})
	}
	all.Wait()
	return sum.Answer()
}

// Present asks the shards from 1 to last, of which it has most at a time,
// whether one of them has entities, until one has. It is so too where one could
// not be asked, which is an error then.
func Present(ctx context.Context, last uint32, most int, look func(context.Context, sharding.ShardID) (*modulev1.FitResponse, error)) (bool, error) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var first error // kept under the lock of Each
	sum := Each(ctx, last, most, func(ctx context.Context, shard sharding.ShardID) (*modulev1.FitResponse, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		one, err := look(ctx, shard)
		if one.GetPresent() {
			enough()
		}
		return one, err
	}, func(shard sharding.ShardID, err error) {
		if first == nil {
			first = fmt.Errorf("shard %d: %w", shard, err)
		}
		enough()
	})
	if sum.GetPresent() {
		return true, nil
	}
	return first != nil, first
}
