//go:build tools

// Names what scripts/test-integration builds: Consul, so that registration and failover meet a real agent.
package consul

import _ "github.com/hashicorp/consul"
