package cron

import (
	"archive/zip"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// zoneinfo is lib/time/zoneinfo.zip of Go, the IANA time zone database 2025c,
// which is in the public domain.
//
//go:embed zoneinfo.zip
var zoneinfo string

// zoneFiles are the files of the database by the names of their zones.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic(err) // it is part of the program
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		files[f.Name] = f
	}
	return files
})

// zones are those that were asked for and exist, of which there are some
// hundreds: *time.Location by name.
var zones sync.Map

// Zone finds a time zone by its IANA name; empty is UTC. It knows those of the
// database that the program holds and no others, so that all nodes of a release
// accept the same names: time.LoadLocation would read the files of the machine,
// and those that ZONEINFO names. The error is ErrZone.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	if len(name) > MaxZoneBytes {
		return nil, fmt.Errorf("%w: its name has more than %d bytes", ErrZone, MaxZoneBytes)
	}
	f := zoneFiles()[name]
	if f == nil {
		return nil, fmt.Errorf("%w: %q", ErrZone, name)
	}
	loc, err := load(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrZone, name, err)
	}
	zones.Store(name, loc)
	return loc, nil
}

func load(f *zip.File) (*time.Location, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(f.Name, data)
}
