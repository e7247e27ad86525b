// SPDX-License-Identifier: Apache-2.0

// Package neutronserver says how the neutron-server of Debian's packages runs for sandboxes and
// tests: ML2 with the mechanism driver of OVN, a MariaDB of its own, and no keystone, so that all
// clients may do everything. Starting the programs is up to its users. The packages are those of
// hack/packages-neutron.txt.
package neutronserver

import (
	_ "embed"
	"net/netip"
	"strings"
	"text/template"
)

// Project is the one that Coelan's resources are of. Without keystone any name is one.
const Project = "coelan"

//go:embed neutron.conf.tmpl
var text string

var configuration = template.Must(template.New("neutron.conf").Parse(text))

// Server is a neutron-server.
type Server struct {
	// Listen is the address of its API.
	Listen netip.AddrPort
	// Dir is for its state, such as locks.
	Dir      string
	Database Database
	// Northbound and Southbound are the remotes of OVN's databases, such as unix:/run/nb.sock.
	Northbound, Southbound string
	// BGPVPNs has it keep BGPVPNs, with a driver that does nothing about them.
	BGPVPNs bool
}

// Configuration is the text of its file neutron.conf.
func (s Server) Configuration() string { return render(configuration, s) }

// render fills a template in, which is one of the program's own.
func render(t *template.Template, data any) string {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		panic(err)
	}
	return b.String()
}

// Command returns the command that runs it with the file.
func (s Server) Command(file string) []string {
	return []string{"neutron-server", "--config-file", file}
}

// Endpoint is the URL of its API, which ends with a slash.
func (s Server) Endpoint() string { return "http://" + s.Listen.String() + "/" }

// Ready is a URL that answers 200 once the server and its database do.
func (s Server) Ready() string { return s.Endpoint() + "v2.0/networks?limit=1" }
