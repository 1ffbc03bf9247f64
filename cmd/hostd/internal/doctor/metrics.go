package doctor

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"
)

// maxMetricsBytes limits the metrics of a node that are read.
const maxMetricsBytes = 16 << 20

// samples are the samples of a node's metrics, by name.
type samples map[string][]sample

type sample struct {
	labels string // as they are written, such as use="server"
	value  float64
}

// parseMetrics parses the Prometheus text format. It skips lines that it does
// not understand.
func parseMetrics(text []byte) samples {
	m := samples{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at <= 0 || line[0] == '#' {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			continue
		}
		name, labels, _ := strings.Cut(line[:at], "{")
		m[name] = append(m[name], sample{strings.TrimSuffix(labels, "}"), value})
	}
	return m
}

// sum adds up the samples of a metric; 0 if there is none.
func (m samples) sum(name string) (total float64) {
	for _, s := range m[name] {
		total += s.value
	}
	return total
}

// label returns the value of a label of a sample.
func (s sample) label(name string) string {
	_, after, ok := strings.Cut(s.labels, name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(after, `"`)
	return value
}
