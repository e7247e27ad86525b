// SPDX-License-Identifier: Apache-2.0

package neutronserver

import (
	_ "embed"
	"net/netip"
	"path/filepath"
	"text/template"
)

//go:embed octavia.conf.tmpl
var octaviaText string

var octaviaConfiguration = template.Must(template.New("octavia.conf").Parse(octaviaText))

// Octavia is the API of Octavia with the provider ovn alone, and the agent that takes what the
// provider reports.
type Octavia struct {
	// Listen is the address of its API.
	Listen netip.AddrPort
	// Dir is for its sockets.
	Dir string
	// Database is that of Neutron, which has Octavia's tables as well.
	Database Database
	// Neutron is the URL of the Neutron that has the networks.
	Neutron string
	// Northbound and Southbound are the remotes of OVN's databases.
	Northbound, Southbound string
}

// Configuration is the text of its file octavia.conf.
func (o Octavia) Configuration() string { return render(octaviaConfiguration, o) }

// Sockets is a folder that has to be there: both programs find each other in it.
func (o Octavia) Sockets() string { return filepath.Join(o.Dir, "octavia-run") }

// Agent returns the command that runs the agent of the drivers with the file. Its sockets have to
// be there before the API starts.
func (o Octavia) Agent(file string) []string { return o.command("octavia-driver-agent", file) }

// API returns the command that runs the API with the file.
func (o Octavia) API(file string) []string { return o.command("octavia-api", file) }

// AgentSockets are those that the agent listens on, each by a process of its own. They must not be
// connected to only to see whether it answers: it reads without end from a client that has gone.
func (o Octavia) AgentSockets() []string {
	dir := o.Sockets()
	return []string{filepath.Join(dir, "status.sock"), filepath.Join(dir, "stats.sock"), filepath.Join(dir, "get.sock")}
}

// command returns the command that runs a program with the file, and with the folder Sockets where
// all releases of octavia-lib look for it, whatever the configuration says.
func (o Octavia) command(program, file string) []string {
	return []string{
		"unshare", "--mount", "sh", "-ec", `mkdir -p /run/octavia; mount --bind "$1" /run/octavia; exec "$2" --config-file "$3"`,
		program, o.Sockets(), program, file,
	}
}

// Endpoint is the URL of its API, which ends with a slash.
func (o Octavia) Endpoint() string { return "http://" + o.Listen.String() + "/" }

// Ready is a URL that answers 200 once the API and its database do.
func (o Octavia) Ready() string { return o.Endpoint() + "v2.0/lbaas/providers" }
