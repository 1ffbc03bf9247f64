package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// limit is one of a type's limits on the command line.
type limit struct {
	name string
	most uint64
	get  func(*modulev1.Limits) uint64
	set  func(*modulev1.Limits, uint64)
}

func limits() []limit {
	return []limit{
		{"command-fuel", 1 << 40, (*modulev1.Limits).GetCommandFuel, func(l *modulev1.Limits, v uint64) { l.CommandFuel = v }},
		{"query-fuel", 1 << 40, (*modulev1.Limits).GetQueryFuel, func(l *modulev1.Limits, v uint64) { l.QueryFuel = v }},
		{"max-events", math.MaxUint32, func(l *modulev1.Limits) uint64 { return uint64(l.GetMaxEvents()) }, func(l *modulev1.Limits, v uint64) { l.MaxEvents = uint32(v) }},
		{"event-bytes", math.MaxUint32, func(l *modulev1.Limits) uint64 { return uint64(l.GetEventBytes()) }, func(l *modulev1.Limits, v uint64) { l.EventBytes = uint32(v) }},
		{"reply-bytes", math.MaxUint32, func(l *modulev1.Limits) uint64 { return uint64(l.GetReplyBytes()) }, func(l *modulev1.Limits, v uint64) { l.ReplyBytes = uint32(v) }},
		{"memory-bytes", 1 << 40, (*modulev1.Limits).GetMemoryBytes, func(l *modulev1.Limits, v uint64) { l.MemoryBytes = v }},
		{"type-memory-bytes", 1 << 40, (*modulev1.Limits).GetTypeMemoryBytes, func(l *modulev1.Limits, v uint64) { l.TypeMemoryBytes = v }},
		{"rate-per-second", 1_000_000, func(l *modulev1.Limits) uint64 { return uint64(l.GetRatePerSecond()) }, func(l *modulev1.Limits, v uint64) { l.RatePerSecond = uint32(v) }},
		{"fuel-per-second", 1 << 40, (*modulev1.Limits).GetFuelPerSecond, func(l *modulev1.Limits, v uint64) { l.FuelPerSecond = v }},
		{"bytes-per-second", 1 << 40, (*modulev1.Limits).GetBytesPerSecond, func(l *modulev1.Limits, v uint64) { l.BytesPerSecond = v }},
	}
}

func limitNames() string {
	var names []string
	for _, l := range limits() {
		names = append(names, l.name)
	}
	return strings.Join(names, ", ")
}

// parseLimits parses NAME=VALUE pairs; nil if there are none.
func parseLimits(pairs []string) (*modulev1.Limits, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := &modulev1.Limits{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if name == "none" && text == "" && len(pairs) == 1 {
			return out, nil
		}
		found := false
		for _, l := range limits() {
			if l.name != name {
				continue
			}
			v, err := strconv.ParseUint(text, 10, 64)
			if !ok || err != nil || v == 0 || v > l.most {
				return nil, cli.Usagef("--limit %s: must be %s=NUMBER, 1 to %d", pair, name, l.most)
			}
			l.set(out, v)
			found = true
		}
		if !found {
			return nil, cli.Usagef("--limit %s: must be one of %s", pair, limitNames())
		}
	}
	return out, nil
}

func limitText(m *modulev1.Limits) string {
	var out []string
	for _, l := range limits() {
		if v := l.get(m); v > 0 {
			out = append(out, fmt.Sprintf("%s=%d", l.name, v))
		}
	}
	return strings.Join(out, ",")
}
