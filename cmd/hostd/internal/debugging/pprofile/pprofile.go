// Package pprofile writes where guests spend their fuel in the format of pprof.
//
// The format is profile.proto of https://github.com/google/pprof. It starts no
// goroutine.
package pprofile

import (
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Stack is what was spent in one function, called by certain others.
type Stack struct {
	Functions []string // the one that spends first
	Samples   int64
	Fuel      int64
}

// Profile is stacks, each once. The zero value is empty.
type Profile struct {
	// Of is what the functions are of, such as a module.
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

// Total is what all stacks have spent together, and in how many samples.
func (p *Profile) Total() (fuel, samples int64) {
	for _, s := range p.stacks {
		fuel += s.Fuel
		samples += s.Samples
	}
	return fuel, samples
}

// Fields of the messages of profile.proto.
const (
	profileSampleType = 1
	profileSample     = 2
	profileMapping    = 3
	profileLocation   = 4
	profileFunction   = 5
	profileStrings    = 6
	profileTime       = 9
	profileDuration   = 10
	profilePeriodType = 11
	profilePeriod     = 12
	profileDefault    = 14

	typeKind = 1
	typeUnit = 2

	sampleLocations = 1
	sampleValues    = 2

	mappingID           = 1
	mappingFile         = 5
	mappingHasFunctions = 7

	locationID      = 1
	locationMapping = 2
	locationLine    = 4
	lineFunction    = 1

	functionID     = 1
	functionName   = 2
	functionSystem = 3
)

// writer has the tables of a profile.
type writer struct {
	out       []byte
	strings   map[string]int
	table     []string
	functions map[string]uint64
}

// Encode returns the profile as pprof reads it, gzipped. The same profile gives
// the same bytes.
func (p *Profile) Encode() ([]byte, error) {
	w := &writer{strings: map[string]int{}, functions: map[string]uint64{}}
	w.text("")
	w.message(profileSampleType, w.unit("samples", "count"))
	w.message(profileSampleType, w.unit("fuel", "units"))
	for _, key := range slices.Sorted(maps.Keys(p.stacks)) {
		s := p.stacks[key]
		var at []byte
		for _, f := range s.Functions {
			at = protowire.AppendVarint(at, w.function(f))
		}
		values := protowire.AppendVarint(protowire.AppendVarint(nil, uint64(s.Samples)), uint64(s.Fuel))
		w.message(profileSample, appendBytes(appendBytes(nil, sampleLocations, at), sampleValues, values))
	}
	w.message(profileMapping, appendNumber(appendNumber(appendNumber(nil, mappingID, 1), mappingFile, w.text(p.Of)), mappingHasFunctions, 1))
	w.number(profileTime, uint64(p.Began.UnixNano()))
	w.number(profileDuration, uint64(p.Long))
	w.message(profilePeriodType, w.unit("fuel", "units"))
	if fuel, samples := p.Total(); samples > 0 {
		w.number(profilePeriod, uint64(fuel/samples))
	}
	w.number(profileDefault, w.text("fuel"))
	for _, s := range w.table {
		w.message(profileStrings, []byte(s))
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(w.out); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return zipped.Bytes(), nil
}

// unit is what a value is of.
func (w *writer) unit(kind, unit string) []byte {
	return appendNumber(appendNumber(nil, typeKind, w.text(kind)), typeUnit, w.text(unit))
}

// text is the index of a string.
func (w *writer) text(s string) uint64 {
	index, ok := w.strings[s]
	if !ok {
		index = len(w.table)
		w.strings[s] = index
		w.table = append(w.table, s)
	}
	return uint64(index)
}

// function is the number of a function, and of the one location in it.
func (w *writer) function(name string) uint64 {
	id, ok := w.functions[name]
	if ok {
		return id
	}
	id = uint64(len(w.functions) + 1)
	w.functions[name] = id
	text := w.text(name)
	w.message(profileFunction, appendNumber(appendNumber(appendNumber(nil, functionID, id), functionName, text), functionSystem, text))
	line := appendNumber(nil, lineFunction, id)
	w.message(profileLocation, appendBytes(appendNumber(appendNumber(nil, locationID, id), locationMapping, 1), locationLine, line))
	return id
}

func (w *writer) message(field protowire.Number, content []byte) {
	w.out = appendBytes(w.out, field, content)
}

func (w *writer) number(field protowire.Number, n uint64) { w.out = appendNumber(w.out, field, n) }

func appendBytes(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}
