package bench

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

// Report is what a run of several workloads measured, as it is printed.
// Latencies are in microseconds.
type Report struct {
	Version string  `json:"version"`
	Go      string  `json:"go"`
	CPUs    int     `json:"cpus"`
	Payload int     `json:"payloadBytes"`
	Results []Line  `json:"results"`
	Ratios  []Ratio `json:"ratios"`
}

// Line is one workload's result.
type Line struct {
	Workload    string  `json:"workload"`
	Concurrency int     `json:"concurrency"`
	Keys        int     `json:"keys"`
	Operations  uint64  `json:"operations"`
	Errors      uint64  `json:"errors"`
	Seconds     float64 `json:"seconds"`
	PerSecond   float64 `json:"perSecond"`
	MeanUs      float64 `json:"meanUs"`
	P50Us       float64 `json:"p50Us"`
	P90Us       float64 `json:"p90Us"`
	P99Us       float64 `json:"p99Us"`
	P999Us      float64 `json:"p999Us"`
	MaxUs       float64 `json:"maxUs"`
}

// Ratio compares two workloads of the same run.
type Ratio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// NewReport makes an empty report of a release.
func NewReport(version string, payloadBytes int) *Report {
	return &Report{Version: version, Go: runtime.Version(), CPUs: runtime.NumCPU(), Payload: payloadBytes, Results: []Line{}, Ratios: []Ratio{}}
}

// Add takes a result.
func (r *Report) Add(res *Result) {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	h := &res.Latency
	r.Results = append(r.Results, Line{
		Workload: res.Workload, Concurrency: res.Concurrency, Keys: res.Keys, Operations: h.Count(), Errors: res.Errors,
		Seconds: res.Elapsed.Seconds(), PerSecond: res.PerSecond(), MeanUs: us(h.Mean()), P50Us: us(h.Quantile(0.5)), P90Us: us(h.Quantile(0.9)),
		P99Us: us(h.Quantile(0.99)), P999Us: us(h.Quantile(0.999)), MaxUs: us(h.Max()),
	})
}

// Compare adds the ratio of a figure of two workloads, when both were run.
func (r *Report) Compare(name, over, under string, figure func(Line) float64) {
	a, okA := r.line(over)
	b, okB := r.line(under)
	if okA && okB && figure(b) > 0 {
		r.Ratios = append(r.Ratios, Ratio{name, figure(a) / figure(b)})
	}
}

func (r *Report) line(workload string) (Line, bool) {
	for _, l := range r.Results {
		if l.Workload == workload {
			return l, true
		}
	}
	return Line{}, false
}

// Write prints the report as a table.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "hostd %s, %s, %d CPUs shared by client and server, payload %d bytes\n\n", r.Version, r.Go, r.CPUs, r.Payload)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "workload\tin flight\tkeys\tops\tops/s\tp50\tp90\tp99\tp99.9\tmax\terrors\t")
	for _, l := range r.Results {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t\n", l.Workload, l.Concurrency, l.Keys, l.Operations, l.PerSecond,
			human(l.P50Us), human(l.P90Us), human(l.P99Us), human(l.P999Us), human(l.MaxUs), l.Errors)
	}
	tw.Flush()
	if len(r.Ratios) > 0 {
		fmt.Fprintln(w)
	}
	for _, ratio := range r.Ratios {
		fmt.Fprintf(w, "%-56s %.2f\n", ratio.Name, ratio.Value)
	}
}

// human shows microseconds with three digits that matter.
func human(us float64) string {
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0fus", us)
	case us < 100_000:
		return fmt.Sprintf("%.2fms", us/1000)
	}
	return fmt.Sprintf("%.2fs", us/1e6)
}
