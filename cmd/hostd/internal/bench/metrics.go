package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metrics are the metrics of a node, by name. Series that differ only in their
// labels are added up.
type Metrics map[string]float64

// ReadMetrics reads the metrics of a node.
func ReadMetrics(ctx context.Context, asker *http.Client, api string) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := asker.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: the node answered %s", resp.Status)
	}
	return parseMetrics(io.LimitReader(resp.Body, 16<<20))
}

// parseMetrics parses the Prometheus text format.
func parseMetrics(r io.Reader) (Metrics, error) {
	m := Metrics{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if at <= 0 || err != nil {
			return nil, fmt.Errorf("malformed line of metrics: %q", line)
		}
		name, _, _ := strings.Cut(line[:at], "{")
		m[name] += value
	}
	return m, lines.Err()
}
