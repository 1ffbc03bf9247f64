package entityapi

import (
	"context"
)

// load implements Load.
type load struct{ *Parts }

func (s load) Hot(ctx context.Context, limit int) ([]hotEntity, error) {
	reports, err := s.ShardRouter.Hot(ctx, limit)
	if err != nil {
		return nil, err
	}
	fuel := 0.0 // fuel of the node, per second
	for i := range reports {
		if seconds := reports[i].Span.Seconds(); seconds > 0 {
			fuel += float64(reports[i].Fuel) / seconds
		}
	}
	var out []hotEntity
	for i := range reports {
		r := &reports[i]
		seconds := max(r.Span.Seconds(), 1) // a rate over a shorter window is not meaningful
		for _, e := range r.Entities {
			hot := hotEntity{
				Entity: e.Entity, Shard: e.Shard, Node: s.Self,
				Commands: float64(e.Commands) / seconds, Over: float64(e.Over) / seconds, Fuel: float64(e.Fuel) / seconds,
			}
			if fuel > 0 {
				hot.FuelShare = min(hot.Fuel/fuel, 1)
			}
			out = append(out, hot)
		}
	}
	return out, nil
}
