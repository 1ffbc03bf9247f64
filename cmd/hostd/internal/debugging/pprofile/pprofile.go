// Package pprofile writes a profile of the fuel that guests use, in the format
// of pprof. It starts no goroutine.
package pprofile

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Stack is the fuel that one call stack used.
type Stack struct {
	Functions []string // innermost function first
	Samples   int64
	Fuel      int64
}

// Profile is a set of stacks. The zero value is empty.
type Profile struct {
	// Of names the owner of the functions, such as a module.
	Of    string
	Began time.Time
	Long  time.Duration

	stacks map[string]*Stack
}

// Add adds a stack. It keeps no reference to it.
func (p *Profile) Add(s Stack) {
	key := strings.Join(s.Functions, "\x00")
	if p.stacks == nil {
		p.stacks = make(map[string]*Stack)
	}
	sum := p.stacks[key]
	if sum == nil {
		sum = &Stack{Functions: slices.Clone(s.Functions)}
		p.stacks[key] = sum
	}
	sum.Samples += s.Samples
	sum.Fuel += s.Fuel
}

// Total returns the total fuel of all stacks, and the number of samples.
func (p *Profile) Total() (fuel, samples int64) {
	for _, s := range p.stacks {
		fuel += s.Fuel
		samples += s.Samples
	}
	return fuel, samples
}

// Encode returns the profile in pprof's format, gzipped. Equal profiles have
// equal bytes.
func (p *Profile) Encode() ([]byte, error) {
	fuelUnits := &profile.ValueType{Type: "fuel", Unit: "units"}
	of := &profile.Mapping{ID: 1, File: p.Of, HasFunctions: true}
	out := &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: "samples", Unit: "count"}, fuelUnits},
		DefaultSampleType: fuelUnits.Type,
		PeriodType:        fuelUnits,
		Mapping:           []*profile.Mapping{of},
		TimeNanos:         p.Began.UnixNano(),
		DurationNanos:     int64(p.Long),
	}
	if fuel, samples := p.Total(); samples > 0 {
		out.Period = fuel / samples
	}
	// Each function has one location.
	locations := map[string]*profile.Location{}
	at := func(name string) *profile.Location {
		l := locations[name]
		if l == nil {
			id := uint64(len(locations) + 1)
			f := &profile.Function{ID: id, Name: name, SystemName: name}
			l = &profile.Location{ID: id, Mapping: of, Line: []profile.Line{{Function: f}}}
			out.Function, out.Location = append(out.Function, f), append(out.Location, l)
			locations[name] = l
		}
		return l
	}
	for _, key := range slices.Sorted(maps.Keys(p.stacks)) {
		s := p.stacks[key]
		sample := &profile.Sample{Value: []int64{s.Samples, s.Fuel}}
		for _, f := range s.Functions {
			sample.Location = append(sample.Location, at(f))
		}
		out.Sample = append(out.Sample, sample)
	}
	var zipped bytes.Buffer
	if err := out.Write(&zipped); err != nil {
		return nil, err
	}
	return zipped.Bytes(), nil
}
