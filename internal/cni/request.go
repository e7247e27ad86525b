// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/cni/wire"
)

// The CNI commands that reach the agent.
const (
	cmdAdd    = "ADD"
	cmdDel    = "DEL"
	cmdCheck  = "CHECK"
	cmdGC     = "GC"
	cmdStatus = "STATUS"
)

// since says which version of the specification has a command.
var since = map[string]string{cmdAdd: "0.1.0", cmdDel: "0.1.0", cmdCheck: "0.4.0", cmdGC: "1.1.0", cmdStatus: "1.1.0"}

// call is a request that is well-formed.
type call struct {
	command string
	Request        // not of GC and STATUS
	netns   string // of ADD and CHECK
	conf    netconf.Config
	// hostPorts are for the pod's first interface, and of ADD.
	hostPorts []attachment.HostPort
	// expects is what CNI_ARGS say of the interface beyond what they ask for.
	expects expected
	// given is what the IPAM plugin of the configuration gave; nil: it was not called yet, or there
	// is none.
	given *given
}

// subject names what the call is about, for messages.
func (c call) subject() string {
	switch {
	case c.ContainerID == "":
		return "network " + c.conf.Name
	case c.PodName == "":
		return "container " + c.Key.String()
	default:
		return fmt.Sprintf("pod %s (container %s)", c.pod(), c.Key)
	}
}

// pod names the pod that the call is of; "" if it is not known.
func (c call) pod() string {
	if c.PodName == "" {
		return ""
	}
	return c.PodNamespace + "/" + c.PodName
}

// parse checks all of a request. What is known about the pod is returned also with an error, so
// that the error can be reported as an Event of the pod.
func (s *Server) parse(r wire.Request) (call, []string, error) {
	c := call{command: r.Command, netns: r.Netns,
		Request: Request{Key: attachment.Key{ContainerID: r.ContainerID, IfName: r.IfName}}}
	var args addressArgs
	if err := checkCommand(r.Command); err != nil {
		return c, nil, err
	}
	if r.Command != cmdGC && r.Command != cmdStatus {
		var argsErr error
		args, argsErr = c.parseArgs(r)
		if err := checkEnvironment(r); err != nil {
			return c, nil, err
		}
		if argsErr != nil && r.Command != cmdDel {
			return c, nil, argsErr
		}
	}
	conf, warnings, err := s.parseConfig(r.Config, r.Command != cmdDel && r.Command != cmdGC)
	c.conf = conf
	if err != nil {
		return c, nil, err
	}
	if err := checkVersion(r.Command, conf.CNIVersion); err != nil {
		return c, nil, err
	}
	if r.Command == cmdAdd {
		if err = c.readPortArgs(args.port, &args); err == nil {
			err = c.read(conf, args)
		}
		if err == nil {
			err = s.readHostPorts(&c)
		}
		if err == nil {
			err = c.checkForeign(args.port)
		}
		if err == nil {
			err = c.readGiven(r.Addresses)
		}
	}
	return c, warnings, err
}

func checkCommand(command string) error {
	if _, known := since[command]; !known {
		return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_COMMAND %q is not known", command), "")
	}
	return nil
}

// checkVersion returns an error if a version of the specification does not have a command.
func checkVersion(command, cniVersion string) error {
	if ok, err := version.GreaterThanOrEqualTo(cniVersion, since[command]); err != nil || !ok {
		return newError(wire.CodeIncompatibleVersion,
			fmt.Sprintf("cniVersion %s in the network configuration has no %s, %s has", cniVersion, command,
				since[command]), "")
	}
	return nil
}

// checkEnvironment checks the variables of ADD, DEL and CHECK.
func checkEnvironment(r wire.Request) error {
	var missing []string
	if r.ContainerID == "" {
		missing = append(missing, "CNI_CONTAINERID")
	}
	if r.IfName == "" {
		missing = append(missing, "CNI_IFNAME")
	}
	if r.Netns == "" && r.Command != cmdDel {
		missing = append(missing, "CNI_NETNS")
	}
	if len(missing) > 0 {
		return newError(wire.CodeInvalidEnvironment, "not set: "+strings.Join(missing, ", "), "")
	}
	if err := utils.ValidateContainerID(r.ContainerID); err != nil {
		return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_CONTAINERID %q", r.ContainerID), err.Msg)
	}
	if err := utils.ValidateInterfaceName(r.IfName); err != nil {
		return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_IFNAME %q", r.IfName), err.Msg+" "+err.Details)
	}
	return nil
}

// podField is what names, namespaces and UIDs may be made of. It keeps what is built
// from them, such as namespace/name/interface, unambiguous.
var podField = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// parseArgs reads CNI_ARGS: KEY=VALUE, separated by semicolons. All three pairs of the pod
// must be there for ADD. It returns what not only Kubernetes' runtimes give: IP, MAC, and the pairs
// of a port.
func (r *Request) parseArgs(w wire.Request) (args addressArgs, err error) {
	ignoreUnknown, unknown := false, ""
	for pair := range strings.SplitSeq(w.Args, ";") {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case pair == "":
		case !ok:
			return args, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_ARGS %q", w.Args),
				fmt.Sprintf("%q is not KEY=VALUE", pair))
		case key == "K8S_POD_NAMESPACE":
			r.PodNamespace = value
		case key == "K8S_POD_NAME":
			r.PodName = value
		case key == "K8S_POD_UID":
			r.PodUID = value
		case key == "K8S_POD_INFRA_CONTAINER_ID":
		case key == "IP" && value != "":
			args.IPs = strings.Split(value, ",")
		case key == "MAC":
			args.MAC = value
		case key == "IP":
		case slices.Contains(portKeys, key):
			if args.port == nil {
				args.port = map[string]string{}
			}
			args.port[key] = value
		case key == "IgnoreUnknown":
			ignoreUnknown = value == "1" || strings.EqualFold(value, "true")
		default:
			unknown = key
		}
	}
	if unknown != "" && !ignoreUnknown {
		return args, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_ARGS has the unknown key %s", unknown),
			"IgnoreUnknown is not set")
	}
	return args, r.checkPod(w.Command == cmdAdd)
}

func (r *Request) checkPod(required bool) error {
	for _, pair := range []struct{ key, value string }{
		{"K8S_POD_NAMESPACE", r.PodNamespace}, {"K8S_POD_NAME", r.PodName}, {"K8S_POD_UID", r.PodUID},
	} {
		switch {
		case pair.value == "" && required:
			return newError(wire.CodeInvalidEnvironment, "CNI_ARGS lacks "+pair.key,
				"the runtime must pass the pod's namespace, name and UID")
		case pair.value == "":
		case len(pair.value) > 253 || !podField.MatchString(pair.value):
			return newError(wire.CodeInvalidEnvironment, fmt.Sprintf("%s %q in CNI_ARGS", pair.key, pair.value),
				"is not a name that Kubernetes allows")
		}
	}
	return nil
}
