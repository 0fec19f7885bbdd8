<?xml version="1.0" encoding="UTF-8"?>
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="html" indent="no" encoding="UTF-8" doctype-system="about:legacy-compat"/>
  <xsl:param name="sort">avg_latency</xsl:param>
  <xsl:param name="title">Links</xsl:param>

  <xsl:template match="/P_Metrics">
    <html>
      <head>
        <title><xsl:value-of select="$title"/></title>
        <style>
          body { font: 14px/1.4 system-ui, sans-serif; margin: 2em }
          table { border-collapse: collapse }
          th, td { padding: .2em .8em; border-bottom: 1px solid #ccc; text-align: left }
          td:nth-child(n+4):nth-child(-n+7) { text-align: right; font-variant-numeric: tabular-nums }
        </style>
      </head>
      <body>
        <h1><xsl:value-of select="$title"/></h1>
        <p><xsl:value-of select="count(performancedata)"/> records</p>
        <table>
          <tr>
            <th>Node</th><th>Link</th><th>Group</th><th>Latency, ms</th><th>Deviation, ms</th><th>Jitter, ms</th>
            <th>Loss</th><th>Date</th><th>Time</th>
          </tr>
          <xsl:choose>
            <xsl:when test="$sort = 'avg_latency'"><!-- the usual one, without a look at the name of every element -->
              <xsl:apply-templates select="performancedata">
                <xsl:sort select="avg_latency" data-type="number" order="descending"/>
              </xsl:apply-templates>
            </xsl:when>
            <xsl:otherwise>
              <xsl:apply-templates select="performancedata">
                <xsl:sort select="*[name() = $sort]" data-type="number" order="descending"/>
              </xsl:apply-templates>
            </xsl:otherwise>
          </xsl:choose>
        </table>
      </body>
    </html>
  </xsl:template>

  <xsl:template match="performancedata">
    <tr>
      <td><xsl:value-of select="Node_ID"/></td>
      <td><xsl:value-of select="link_ID"/></td>
      <td><xsl:value-of select="user_group"/></td>
      <td><xsl:apply-templates select="avg_latency"/></td>
      <td><xsl:apply-templates select="Std_dev"/></td>
      <td><xsl:apply-templates select="jitter"/></td>
      <td><xsl:apply-templates select="lossrate"/></td>
      <td><xsl:value-of select="date"/></td>
      <td><xsl:value-of select="time"/></td>
    </tr>
  </xsl:template>

  <xsl:template match="avg_latency | Std_dev | jitter | lossrate">
    <xsl:value-of select="format-number(., '0.####')"/>
  </xsl:template>
</xsl:stylesheet>
