package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"
)

// Table writes rows below a header, whose columns are separated by tabs. On a
// terminal, numbers are right-aligned, and the header and cells that need
// attention are coloured if NewPaint allows it. If the rows are wider than the
// terminal, empty columns are omitted.
func Table(w io.Writer, header string, rows func(row func(columns ...any))) {
	var cells [][]string
	rows(func(columns ...any) {
		line := make([]string, len(columns))
		for i, c := range columns {
			line[i] = Clean(fmt.Sprint(c))
		}
		cells = append(cells, line)
	})
	bare := false
	if h, ok := w.(headless); ok {
		w, bare = h.Writer, true
	}
	if !OnTerminal(w) {
		plainTable(w, header, bare, cells)
		return
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil || width <= 0 {
		width = 1 << 20 // unknown width: no limit
	}
	text := screenTable(strings.Split(header, "\t"), cells, width, NewPaint(w))
	if bare {
		_, text, _ = strings.Cut(text, "\n")
	}
	io.WriteString(w, text)
}

// Height returns the number of lines of a terminal; 0 if w is not a terminal or
// the number is unknown.
func Height(w io.Writer) int {
	if h, ok := w.(headless); ok {
		w = h.Writer
	}
	if !OnTerminal(w) {
		return 0
	}
	_, height, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return height
}

// plainTable writes a table for other outputs than terminals.
func plainTable(w io.Writer, header string, bare bool, cells [][]string) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if !bare {
		fmt.Fprintln(tw, header)
	}
	for _, line := range cells {
		fmt.Fprintln(tw, strings.Join(line, "\t"))
	}
	tw.Flush()
}

// A column is a column of a table on a terminal.
type column struct {
	index, width int
	head         string
	right        bool // the values are numbers
	empty        bool // all cells are empty
}

// columnGap is the space between columns, in characters.
const columnGap = 2

// screenTable returns a table for a terminal that is width characters wide.
func screenTable(head []string, cells [][]string, width int, paint Paint) string {
	var columns []column
	wide := 0
	for i, h := range head {
		c := measure(i, h, cells)
		columns = append(columns, c)
		wide += c.width + columnGap
	}
	if wide-columnGap > width {
		var some []column
		for _, c := range columns {
			if !c.empty {
				some = append(some, c)
			}
		}
		columns = some
	}
	var out strings.Builder
	writeLine(&out, columns, func(c column) (string, string) { return c.head, paint.Head(c.head) })
	for _, line := range cells {
		writeLine(&out, columns, func(c column) (string, string) {
			text := ""
			if c.index < len(line) {
				text = line[c.index]
			}
			return text, paint.cell(c.head, text)
		})
	}
	return out.String()
}

// measure measures the cells of a column.
func measure(index int, head string, cells [][]string) column {
	c := column{index: index, width: utf8.RuneCountInString(head), head: head, empty: len(cells) > 0}
	numbers := 0
	for _, line := range cells {
		if index >= len(line) {
			continue
		}
		text := line[index]
		c.width = max(c.width, utf8.RuneCountInString(text))
		if text == "" || text == "-" {
			continue
		}
		c.empty = false
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			numbers = -1
		} else if numbers >= 0 {
			numbers++
		}
	}
	c.right = numbers > 0
	return c
}

// writeLine writes one line. of returns the cell of a column, plain and
// painted.
func writeLine(out *strings.Builder, columns []column, of func(c column) (text, painted string)) {
	var line strings.Builder
	room := 0 // spaces to add before the next text
	for _, c := range columns {
		text, painted := of(c)
		free := c.width - utf8.RuneCountInString(text)
		if c.right {
			room, free = room+free, 0
		}
		if text != "" {
			line.WriteString(strings.Repeat(" ", room) + painted)
			room = 0
		} else {
			free = c.width
		}
		room += free + columnGap
	}
	out.WriteString(line.String() + "\n")
}

// cell paints a cell if its text is one of the known words.
func (p Paint) cell(head, text string) string {
	switch head {
	case "STATUS":
		word, more, _ := strings.Cut(text, ",")
		switch word {
		case "up", "passed", "active":
			if more != "" {
				return p.Warn(text) // such as up,draining
			}
			return p.Good(text)
		case "joining", "weakly_up", "leaving":
			return p.Warn(text)
		case "down", "failed", "quarantined":
			return p.Bad(text)
		}
	case "REACHABLE":
		if text == "false" {
			return p.Bad(text)
		}
	case "BREAKS", "STOPPED":
		if text != "" {
			return p.Bad(text)
		}
	}
	return text
}
