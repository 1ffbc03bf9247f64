package quickjs

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// lineTable converts a source map to the table that the SDK's runtime reads:
// the files as JSON, and for each line of the script the places where the
// source line changes, as COLUMN,FILE,LINE. The table can be searched quickly,
// because a failing call may have little fuel left. It omits the names of the
// SDK's files, because authors look for lines of their own code.
func lineTable(sourceMap []byte) ([]byte, error) {
	var m struct {
		Sources  []string `json:"sources"`
		Mappings string   `json:"mappings"`
	}
	if err := json.Unmarshal(sourceMap, &m); err != nil {
		return nil, fmt.Errorf("source map: %w", err)
	}
	for i, name := range m.Sources {
		if strings.HasPrefix(name, sdkNamespace+":") || strings.Contains(name, "/hostd-sdk/src/") ||
			strings.HasPrefix(name, "hostd-sdk/src/") || strings.Contains(name, "guest-sdk/typescript/src/") {
			m.Sources[i] = ""
		}
	}
	files, err := json.Marshal(m.Sources)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	out.Write(files)
	file, line := 0, 0
	for _, generated := range strings.Split(m.Mappings, ";") {
		out.WriteByte('\n')
		column := 0
		last := [2]int{-1, -1}
		for _, segment := range strings.Split(generated, ",") {
			numbers, err := variableLength(segment)
			if err != nil {
				return nil, err
			}
			if len(numbers) > 0 {
				column += numbers[0]
			}
			if len(numbers) < 4 {
				continue
			}
			file += numbers[1]
			line += numbers[2]
			if at := [2]int{file, line}; at != last {
				if last[0] >= 0 {
					out.WriteByte(' ')
				}
				fmt.Fprintf(&out, "%d,%d,%d", column, file, line+1)
				last = at
			}
		}
	}
	return []byte(out.String()), nil
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// variableLength decodes the numbers of a source map segment: five bits per
// digit, the lowest first, with the sign in the lowest bit.
func variableLength(segment string) (numbers []int, err error) {
	value, shift := 0, 0
	for i := range len(segment) {
		digit := strings.IndexByte(base64Digits, segment[i])
		if digit < 0 || shift > 30 {
			return nil, errors.New("source map: malformed number")
		}
		value |= digit & 31 << shift
		if shift += 5; digit&32 != 0 {
			continue
		}
		if value&1 != 0 {
			value = -value
		}
		numbers = append(numbers, value/2)
		value, shift = 0, 0
	}
	if shift != 0 {
		return nil, errors.New("source map: truncated number")
	}
	return numbers, nil
}
