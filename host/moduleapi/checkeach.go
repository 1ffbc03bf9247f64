package moduleapi

import (
	"context"
	"fmt"
	"sync"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/sharding"
)

// checkEach calls look for the shards from 1 to last, at most `most` of them
// concurrently, and returns the sum of the results. A shard for which look fails
// counts as unread and is passed to failed.
func checkEach(ctx context.Context, last uint32, most int, look func(context.Context, sharding.ShardID) (*modulev1.CheckCompatibilityResponse, error), failed func(sharding.ShardID, error)) *modulev1.CheckCompatibilityResponse {
	var mu sync.Mutex
	var all sync.WaitGroup
	sum := newCompatibilitySum()
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
				sum.unread(1)
				return
			}
			sum.add(one)
		})
	}
	all.Wait()
	return sum.answer()
}

// checkPresent reports whether a shard from 1 to last has entities. It asks
// at most `most` shards concurrently and stops at the first shard that has
// entities. If it could not ask a shard, it returns true and the error.
func checkPresent(ctx context.Context, last uint32, most int, look func(context.Context, sharding.ShardID) (*modulev1.CheckCompatibilityResponse, error)) (bool, error) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var first error // written while checkEach holds its lock
	sum := checkEach(ctx, last, most, func(ctx context.Context, shard sharding.ShardID) (*modulev1.CheckCompatibilityResponse, error) {
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
