package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/doctor"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
)

func newDoctor(std cli.Stdio) *cobra.Command { return doctor.New(std, examineLocal) }

// examineLocal returns the findings of 'serve --check' about a configuration
// file. If a node uses the data directory, the ports are its own and are not
// checked.
func examineLocal(file string) ([]doctor.Finding, []doctor.Gap, error) {
	cfg, err := config.Load(config.Sources{File: file, LookupEnv: os.LookupEnv})
	if err != nil {
		return nil, nil, err
	}
	const doc = "docs/reference/configuration.md"
	var found []doctor.Finding
	var gaps []doctor.Gap
	if err := unknownVariable(); err != nil {
		found = append(found, doctor.Finding{ID: "environment-variable-unknown", Severity: doctor.Warning, Subject: "this machine", Problem: cli.Clean(err.Error()), Mend: []string{"env | grep ^HOSTD_"}, Doc: "docs/operating/command-line.md"})
	}
	runs := false
	for _, f := range host.Check(cfg) {
		switch {
		case f.Err == nil:
		case errors.Is(f.Err, syscall.EWOULDBLOCK):
			runs = true
		case errors.Is(f.Err, syscall.EADDRINUSE) && runs:
			gaps = append(gaps, doctor.Gap{What: "ports of the local node", Why: "the running node listens on them"})
		case f.Subject == "disk-read-only-bytes":
			found = append(found, doctor.Finding{ID: "disk-full", Severity: doctor.Critical, Subject: "this machine", Problem: cli.Clean(f.Err.Error()), Mend: []string{"df -h " + cfg.DataDir}, Doc: "docs/operating/recover.md#a-disk-is-full"})
		default:
			found = append(found, doctor.Finding{ID: "configuration-invalid", Severity: doctor.Critical, Subject: "configuration key " + f.Subject, Problem: cli.Clean(f.Err.Error()), Mend: []string{"edit " + file, "hostd serve --check --config " + file}, Doc: doc})
		}
	}
	return found, gaps, nil
}
