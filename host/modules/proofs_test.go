package modules

import (
	"context"
	"testing"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// shardsFunc is a shardsChecker that calls the function.
type shardsFunc func(context.Context, CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error)

func (f shardsFunc) Touched(ctx context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
	return f(ctx, q)
}

// TestComparisonWaitsForLeaders checks that a shard without a leader is
// compared again and does not make the activation fail.
func TestComparisonWaitsForLeaders(t *testing.T) {
	looks := 0
	look := shardsFunc(func(context.Context, CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
		if looks++; looks < 3 {
			return &modulev1.CheckCompatibilityResponse{UncheckedShards: 1}, nil
		}
		return &modulev1.CheckCompatibilityResponse{Entities: 7}, nil
	})
	p := &proof{Service: &Service{shards: look}}
	if found, err := p.compare(t.Context(), 0); err != nil || found.GetEntities() != 7 || looks != 3 {
		t.Errorf("after %d looks: %v, %v", looks, found, err)
	}
}
