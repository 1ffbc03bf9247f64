package entity

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/telemetry"
)

// mostTypes bounds the types that have counts of their own.
const mostTypes = 100

var stageNames = [request.Stages]string{request.StageQueue: "queue", request.StageGuest: "guest", request.StageCommit: "commit"}

// StageTable measures the durations of commands by stage, over all executors of
// a node. It is a prometheus.Collector and safe for concurrent use. A nil table
// measures nothing.
type StageTable struct {
	desc   *prometheus.Desc
	bounds *telemetry.HistogramBounds

	mu    sync.Mutex
	all   map[string][]*counts // histograms by entity type, one element for each executor
	other *counts              // shared by the types beyond mostTypes
}

// NewStageTable returns an empty table.
func NewStageTable() *StageTable {
	return &StageTable{
		desc: telemetry.NewHistogramDesc(prometheus.HistogramOpts{
			Name: "hostd_command_seconds", Help: "Duration of the stages of commands: queue until the executor called the guest, guest for the call, commit until the record was applied. Types beyond the first 100 on the node share a series without a type name.",
		}, []string{"entity_type", "stage"}),
		bounds: telemetry.NewHistogramBounds(telemetry.LatencyBuckets()), all: make(map[string][]*counts),
	}
}

// counts holds the histograms of one type in one executor.
type counts struct {
	request.Took
	histograms [request.Stages]*telemetry.Histogram
}

// Of returns the histograms for the commands of a type in one executor, or nil
// if t is nil. Each call returns separate histograms, except for types beyond
// mostTypes.
func (t *StageTable) Of(entityType string) *request.Took {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[entityType] == nil && len(t.all) >= mostTypes {
		if t.other == nil {
			t.other = t.counts()
		}
		return &t.other.Took
	}
	c := t.counts()
	t.all[entityType] = append(t.all[entityType], c)
	return &c.Took
}

func (t *StageTable) counts() *counts {
	var c counts
	for stage := range c.histograms {
		c.histograms[stage] = telemetry.NewHistogram(t.bounds)
		c.Took[stage] = c.histograms[stage]
	}
	return &c
}

// Describe implements prometheus.Collector.
func (t *StageTable) Describe(out chan<- *prometheus.Desc) { out <- t.desc }

// Collect implements prometheus.Collector.
func (t *StageTable) Collect(out chan<- prometheus.Metric) {
	for entityType, of := range t.Snapshots() {
		for stage, name := range stageNames {
			out <- of[stage].Metric(t.desc, entityType, name)
		}
	}
}

// Snapshots returns the histograms by entity type. The types beyond mostTypes
// share the empty name.
func (t *StageTable) Snapshots() map[string]*[request.Stages]telemetry.HistogramSnapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]*[request.Stages]telemetry.HistogramSnapshot, len(t.all)+1)
	for entityType, of := range t.all {
		out[entityType] = sum(of)
	}
	if t.other != nil {
		out[""] = sum([]*counts{t.other})
	}
	return out
}

func sum(of []*counts) *[request.Stages]telemetry.HistogramSnapshot {
	var s [request.Stages]telemetry.HistogramSnapshot
	for _, c := range of {
		for stage := range s {
			s[stage].Add(c.histograms[stage])
		}
	}
	return &s
}
