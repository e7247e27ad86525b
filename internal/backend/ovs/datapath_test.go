// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
)

// bridgeList is a database that has nothing else.
type bridgeList struct {
	vswitchDatabase
	list []ovsdb.BridgeState
}

func (b bridgeList) Bridges(context.Context) ([]ovsdb.BridgeState, error) { return b.list, nil }

// The datapath is the one that is set, else the bridge's, else the kernel's where there is one.
func TestDatapathIsChosen(t *testing.T) {
	both, one := []string{"netdev", "system"}, []string{"netdev"}
	own := func(typ string) []ovsdb.BridgeState { return []ovsdb.BridgeState{{Name: "br-int", Datapath: typ}} }
	for name, tc := range map[string]struct {
		set     config.Datapath
		offered []string
		bridges []ovsdb.BridgeState
		want    string
		err     string
	}{
		"as set":                     {config.DatapathNetdev, both, own("system"), "netdev", ""},
		"the kernel's":               {config.DatapathAuto, both, nil, "system", ""},
		"no kernel module":           {config.DatapathAuto, one, nil, "netdev", ""},
		"as the bridge has it":       {config.DatapathAuto, both, own("netdev"), "netdev", ""},
		"set, but there is none":     {config.DatapathSystem, one, nil, "", `datapath "system" cannot be used here, Open vSwitch 3.1.0 offers [netdev]`},
		"the bridge's cannot be had": {config.DatapathAuto, one, own("system"), "", "is the kernel module openvswitch there?"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &vswitch{config: config.Config{Bridge: "br-int", Datapath: tc.set}, db: bridgeList{list: tc.bridges}}
			got, err := v.datapath(t.Context(), ovsdb.Info{Version: ovsdb.Version{3, 1, 0}, DatapathTypes: tc.offered})
			if string(got) != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
