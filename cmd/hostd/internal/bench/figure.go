package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Figure is a result of a workload other than rates and latencies.
type Figure struct {
	Workload string  `json:"workload"`
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
}

// Figure adds a figure.
func (r *Report) Figure(workload, name string, value float64, unit string) {
	r.Figures = append(r.Figures, Figure{workload, name, value, unit})
}

func (r *Report) writeFigures(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, f := range r.Figures {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", f.Workload, f.Name, short(f.Value), f.Unit)
	}
	tw.Flush()
}

// short formats a number with its significant digits.
func short(v float64) string {
	switch {
	case v >= 100 || v <= -100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
