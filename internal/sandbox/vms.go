// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/sandbox/machine"
)

// physicalNetwork is what OVN knows the fabric by, and vmResources the name of what machines of
// OpenStack share in Neutron.
const (
	physicalNetwork = "fabric"
	vmResources     = "sandbox-machines"
)

// bridgeMappings are a hypervisor's physical networks and their bridges.
const bridgeMappings = physicalNetwork + ":" + ovsBridge

// ovnBridge is the bridge of ovn-controller, and of the agent.
const ovnBridge = "br-int"

// bootVMs brings up the machines of OpenStack. Each has a port of Neutron with a trunk, which its
// hypervisor connects, as with Nova, and which its node names.
func (s *Sandbox) bootVMs(ctx context.Context) error {
	ports, err := s.vmPorts(ctx)
	if err != nil {
		return err
	}
	if err := each(ctx, s.VMNames(), func(ctx context.Context, vm string) error {
		if err := os.WriteFile(s.vmPortFile(vm), []byte(ports[vm]), 0o644); err != nil {
			return err
		}
		return s.boot(ctx, vm)
	}); err != nil {
		return err
	}
	if err := s.waitRegistered(ctx, s.VMNames()); err != nil {
		return err
	}
	return each(ctx, s.VMNames(), func(ctx context.Context, vm string) error {
		_, err := s.Kubectl(ctx, "annotate", "node", vm, "--overwrite", v1alpha1.AnnotationTrunkPort+"="+ports[vm])
		return err
	})
}

// vmPortFile has the UUID of the machine's port, for boots.
func (s *Sandbox) vmPortFile(vm string) string { return filepath.Join(s.machineDir(vm), "port") }

// bootVM boots a machine of OpenStack and plugs it in, as Nova does: the interface that its wire
// ends with is another one after each boot, which Open vSwitch may not notice on the userspace
// datapath.
func (s *Sandbox) bootVM(ctx context.Context, vm string) error {
	hypervisor := s.hypervisor(vm)
	if !s.Running(hypervisor) {
		return fmt.Errorf("it is a machine on %s, which is off: start that", hypervisor)
	}
	port, err := os.ReadFile(s.vmPortFile(vm))
	if err != nil {
		return fmt.Errorf("port of Neutron: %w; `coelan sandbox up` makes it", err)
	}
	if err := s.WaitComponent(ctx, hypervisor, ovsVswitchd, bootTimeout); err != nil {
		return err
	}
	if _, err := s.Exec(ctx, hypervisor, "ovs-vsctl", "--timeout=30", "wait-until", "Bridge", ovnBridge,
		"--", "--if-exists", "del-port", ovnBridge, vm); err != nil {
		return err
	}
	if err := s.bootMachine(ctx, vm); err != nil {
		return err
	}
	_, err = s.Exec(ctx, hypervisor, "ovs-vsctl", "--timeout=30", "add-port", ovnBridge, vm,
		"--", "set", "Interface", vm, "external_ids:iface-id="+string(port))
	if err != nil { // the next try begins anew
		return errors.Join(err, machine.Kill(ctx, s.machineDir(vm)))
	}
	return nil
}

// vmPorts are the UUIDs of the machines' ports, which are made if they are not there.
func (s *Sandbox) vmPorts(ctx context.Context) (map[string]string, error) {
	if err := s.showMappings(ctx); err != nil {
		return nil, err
	}
	api := s.neutronAPI()
	network, err := api.ensure(ctx, "network", object{"name": vmResources}, object{
		"provider:network_type": "flat", "provider:physical_network": physicalNetwork,
	})
	if err != nil {
		return nil, err
	}
	group, err := api.ensure(ctx, "security_group", object{"name": vmResources}, nil)
	if err != nil {
		return nil, err
	}
	for _, family := range of(s.Family, families[string]{"IPv4", "IPv6"}) {
		if _, err := api.ensure(ctx, "security_group_rule",
			object{"security_group_id": group, "direction": "ingress", "ethertype": family}, nil); err != nil {
			return nil, err
		}
	}
	var subnets []string
	for _, cidr := range of(s.Family, nodeNets) {
		key := object{"network_id": network, "cidr": cidr.String()}
		subnet, err := api.ensure(ctx, "subnet", key, subnetOfVMs(cidr))
		if err != nil {
			return nil, err
		}
		subnets = append(subnets, subnet)
	}
	ports := map[string]string{}
	for _, vm := range s.VMNames() {
		var fixed []object
		for i, a := range s.addresses(vm) {
			fixed = append(fixed, object{"subnet_id": subnets[i], "ip_address": a.String()})
		}
		var more []object
		for _, net := range of(s.Family, balancerNets) {
			more = append(more, object{"ip_address": net.String()})
		}
		ports[vm], err = api.ensure(ctx, "port", object{"network_id": network, "name": vm}, object{
			"device_owner": "compute:nova", "device_id": "sandbox/" + vm,
			"mac_address": hostMAC(s.hostNumber(vm)).String(), "fixed_ips": fixed, "allowed_address_pairs": more,
			"security_groups": []string{group},
		})
		if err != nil {
			return nil, err
		}
		if _, err := api.ensure(ctx, "trunk", object{"port_id": ports[vm]}, object{"name": vm}); err != nil {
			return nil, err
		}
		if err := api.bind(ctx, ports[vm], s.hypervisor(vm)); err != nil {
			return nil, fmt.Errorf("%s: %w", vm, err)
		}
	}
	return ports, nil
}

// showMappings has Neutron know of the hypervisors' bridge to the fabric: that of Debian 12 looks
// for it in a column that its ovn-controller does not fill.
func (s *Sandbox) showMappings(ctx context.Context) error {
	for _, vm := range s.VMNames() {
		if _, err := s.Exec(ctx, ControlPlaneName, "ovn-sbctl", "--timeout=30", "--db=unix:"+ovnSocket(ovnSouthbound),
			"set", "Chassis", s.hypervisor(vm), "external_ids:ovn-bridge-mappings="+bridgeMappings); err != nil {
			return err
		}
	}
	return nil
}

// subnetOfVMs are the attributes of the nodes' network in Neutron, which only has the addresses of
// the machines of OpenStack to give away.
func subnetOfVMs(cidr netip.Prefix) object {
	version, from, to, gateway := 4, host(vmHosts+1).v4, host(vmHosts+maxVMs).v4, host(fabricHost).v4
	if cidr.Addr().Is6() {
		version, from, to, gateway = 6, host(vmHosts+1).v6, host(vmHosts+maxVMs).v6, host(fabricHost).v6
	}
	return object{
		"ip_version": version, "enable_dhcp": false, "gateway_ip": gateway.String(),
		"allocation_pools": []object{{"start": from.String(), "end": to.String()}},
	}
}
