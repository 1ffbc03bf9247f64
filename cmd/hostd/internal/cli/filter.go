package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"

	"github.com/itchyny/gojq"
)

// filter is a jq expression. It reads no environment variables, files or
// modules.
type filter struct{ code *gojq.Code }

// newFilter compiles an expression; its faults are faults of the command line.
func newFilter(text string) (*filter, error) {
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, Usagef("--jq: %v", err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, Usagef("--jq: %v", err)
	}
	return &filter{code}, nil
}

// print writes the results of the expression on JSON text, one a line: strings
// without quotes, other values as JSON.
func (f *filter) print(ctx context.Context, w io.Writer, text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var input any
	if err := d.Decode(&input); err != nil {
		return err
	}
	results := f.code.RunWithContext(ctx, exact(input))
	for {
		v, ok := results.Next()
		if !ok {
			return nil
		}
		if err, failed := v.(error); failed {
			var halt *gojq.HaltError
			if errors.As(err, &halt) && halt.Value() == nil {
				return nil
			}
			return fmt.Errorf("--jq: %w", err)
		}
		line, isText := v.(string)
		if !isText {
			out, err := gojq.Marshal(v)
			if err != nil {
				return err
			}
			line = string(out)
		}
		if _, err := fmt.Fprintln(w, escapeJSON(line)); err != nil {
			return err
		}
	}
}

// exact converts decoded JSON to the types of the expression. Whole numbers
// keep all digits.
func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = exact(v[name])
		}
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		if n, ok := new(big.Int).SetString(v.String(), 10); ok {
			return n
		}
		n, err := v.Float64()
		if err != nil {
			return v.String() // beyond the range of floating-point numbers
		}
		return n
	}
	return v
}
