// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

// hostLocalRange is a range of the IPAM plugin host-local, as its documentation has it:
// https://www.cni.dev/plugins/current/ipam/host-local.
type hostLocalRange struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart"`
	RangeEnd   string `json:"rangeEnd"`
	Gateway    string `json:"gateway"`
}

// checkHostLocal says what in a configuration of host-local no pod could be given or could use. The
// rest host-local itself checks.
func checkHostLocal(value json.RawMessage) error {
	var conf struct {
		hostLocalRange
		Ranges [][]hostLocalRange `json:"ranges"`
	}
	if err := json.Unmarshal(value, &conf); err != nil {
		return err
	}
	if conf.Subnet == "" && len(conf.Ranges) == 0 {
		return errors.New("it has neither subnet nor ranges")
	}
	if conf.Subnet != "" {
		if err := conf.check(); err != nil {
			return err
		}
	}
	for n, set := range conf.Ranges {
		for m, r := range set {
			if err := r.check(); err != nil {
				return fmt.Errorf("ranges[%d][%d]: %w", n, m, err)
			}
		}
	}
	return nil
}

func (r hostLocalRange) check() error {
	subnet, err := netip.ParsePrefix(r.Subnet)
	if err != nil {
		return fmt.Errorf("subnet %q is not a prefix", r.Subnet)
	}
	subnet = subnet.Masked()
	var start, end netip.Addr
	for _, part := range []struct {
		key, value string
		into       *netip.Addr
	}{{"rangeStart", r.RangeStart, &start}, {"rangeEnd", r.RangeEnd, &end}, {"gateway", r.Gateway, new(netip.Addr)}} {
		if part.value == "" {
			continue
		}
		if *part.into, err = netip.ParseAddr(part.value); err != nil {
			return fmt.Errorf("%s %q is not an address", part.key, part.value)
		}
		if !subnet.Contains(*part.into) {
			return fmt.Errorf("%s %s is outside of the subnet %s", part.key, part.value, subnet)
		}
	}
	if start.IsValid() && end.IsValid() && end.Less(start) {
		return fmt.Errorf("rangeEnd %s is before rangeStart %s", end, start)
	}
	return nil
}
