// SPDX-License-Identifier: Apache-2.0

package neutronserver

import (
	"net/netip"
	"strings"
	"testing"
)

func TestConfiguration(t *testing.T) {
	for listen, want := range map[string][]string{
		"192.0.2.1:9696":     {"\nbind_host = 192.0.2.1\nbind_port = 9696\n", "\noverlay_ip_version = 4\n"},
		"[2001:db8::1]:9696": {"\nbind_host = 2001:db8::1\nbind_port = 9696\n", "\noverlay_ip_version = 6\n"},
	} {
		s := Server{
			Listen: netip.MustParseAddrPort(listen), Dir: "/state", Database: Database{Socket: "/run/db.sock"},
			Northbound: "unix:/run/nb.sock", Southbound: "unix:/run/sb.sock",
		}
		for _, text := range append(want, "\nstate_path = /state\n", "\novn_nb_connection = unix:/run/nb.sock\n",
			"\novn_sb_connection = unix:/run/sb.sock\n", "\nconnection = mysql+pymysql://root@localhost/neutron?unix_socket=/run/db.sock\n") {
			if !strings.Contains(s.Configuration(), text) {
				t.Errorf("%s: %q is missing in\n%s", listen, text, s.Configuration())
			}
		}
		const plugin, provider = ",bgpvpn\n", "service_provider = BGPVPN:"
		if text := s.Configuration(); strings.Contains(text, plugin) || strings.Contains(text, provider) {
			t.Errorf("%s: there are BGPVPNs in\n%s", listen, text)
		}
		s.BGPVPNs = true
		if text := s.Configuration(); !strings.Contains(text, plugin) || !strings.Contains(text, provider) {
			t.Errorf("%s: there are no BGPVPNs in\n%s", listen, text)
		}
		if got, want := s.Endpoint(), "http://"+listen+"/"; got != want {
			t.Errorf("endpoint %s, want %s", got, want)
		}
	}
}
